"""Compact storage of weights as int8, a quarter of the size of float32, for shipped models.

Every matrix W except position tables is stored as integers q from -127 to 127 and one float32 scale per 64 columns of
a row, with W close to q * scale; all other weights are float16. Integers of fewer bits have the same format, and compress
better in a wheel. Weights are converted back to float32 when loaded: this is a storage format only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from textnuggets.errors import CheckpointError
from textnuggets.model.checkpoint import check_names

INDEX = "compact.json"  # maps each tensor to its file; its presence marks a compact folder
SCALE = "::scale"  # suffix of the name of a matrix's scales
GROUP = 64  # columns that share a scale
FILE_BYTES = 45_000_000  # maximum size of one file


def quantize(weight: Tensor, bits: int = 8) -> tuple[Tensor, Tensor]:
    """Return a matrix `(rows, columns)` as int8 with values of so many bits, and its scales `(rows, groups)`."""
    rows, columns = weight.shape
    largest = 2 ** (bits - 1) - 1
    group = GROUP if columns % GROUP == 0 else columns
    grouped = weight.float().view(rows, -1, group)
    scale = (grouped.abs().amax(-1) / largest).clamp(min=torch.finfo(torch.float32).tiny)
    whole = (grouped / scale.float()[..., None]).round().clamp(-largest, largest)
    return whole.to(torch.int8).view(rows, columns), scale


def dequantize(whole: Tensor, scale: Tensor) -> Tensor:
    """Return the float32 matrix of int8 values and scales."""
    rows, columns = whole.shape
    return (whole.float().view(rows, scale.shape[1], -1) * scale.float()[..., None]).view(rows, columns)


def write_compact(state: dict[str, Tensor], folder: Path, bits: int = 8) -> None:
    """Write weights as int8, with values of so many bits, and float16, in files of limited size."""
    stored: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in state.items():
        if value.data_ptr() in seen:  # tied weights are stored once and tied again when loaded
            continue
        seen.add(value.data_ptr())
        # Position tables are small, and their errors would affect every text.
        exact = "position" in name or "relative_attention" in name
        if value.ndim == 2 and value.is_floating_point() and not exact:
            stored[name], stored[name + SCALE] = quantize(value, bits)
        else:
            stored[name] = value.half() if value.is_floating_point() else value
    files: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, value in stored.items():
        if files[-1] and size + value.nbytes > FILE_BYTES:
            files.append({})
            size = 0
        files[-1][name] = value.contiguous()
        size += value.nbytes
    file_of: dict[str, str] = {}
    for number, part in enumerate(files, 1):
        file = f"compact-{number}-of-{len(files)}.safetensors"
        save_file(part, folder / file)
        file_of |= dict.fromkeys(part, file)
    (folder / INDEX).write_text(json.dumps({"group": GROUP, "tensors": file_of}, indent=1), encoding="utf-8")


def read_compact(index: Path, fetch: Callable[[str], Path | None]) -> dict[str, Tensor]:
    """Read the weights of a compact model as float32.

    Args:
        index: Path of its `compact.json`.
        fetch: Function from the name of a file of the model to its path, or None if it is missing.
    """
    try:
        file_of = json.loads(index.read_text(encoding="utf-8"))["tensors"]
        check_names(index, file_of.values())
        files = sorted(set(file_of.values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{index} is damaged: save or download the model again.") from error
    stored: dict[str, Tensor] = {}
    for file in files:
        path = fetch(file)
        if path is None:
            raise CheckpointError(f"{index} names {file}, which is missing.")
        with safe_open(path, framework="pt") as tensors:
            stored |= {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    if wrong := sorted(stored.keys() ^ file_of.keys()):
        raise CheckpointError(f"{index} and the files it names differ in {wrong[0]}: save the model again.")
    state: dict[str, Tensor] = {}
    for name, value in stored.items():
        if name + SCALE in stored:
            state[name] = dequantize(value, stored[name + SCALE])
        elif not name.endswith(SCALE):
            state[name] = value.float() if value.is_floating_point() else value
    return state
