"""Weights stored as int8: a quarter of the size of float32, for models that are shipped.

Every matrix W but position tables becomes whole numbers q from -127 to 127 and one float32 scale for each run of 64 columns,
so that W is nearly q * scale; everything else is float16. Loading makes ordinary float weights of them
again: this is a way to store a model, not to compute with it.
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

INDEX = "compact.json"  # tells a compact folder, and which file each tensor is in
SCALE = "::scale"  # behind the name of a matrix, the name of its scales
GROUP = 64  # columns that share a scale
FILE_BYTES = 45_000_000  # of one file at most


def quantize(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix `(rows, columns)` as int8 and its scales `(rows, groups)`."""
    rows, columns = weight.shape
    group = GROUP if columns % GROUP == 0 else columns
    grouped = weight.float().view(rows, -1, group)
    scale = (grouped.abs().amax(-1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
    whole = (grouped / scale.float()[..., None]).round().clamp(-127, 127)
    return whole.to(torch.int8).view(rows, columns), scale


def dequantize(whole: Tensor, scale: Tensor) -> Tensor:
    """The matrix again, in float32."""
    rows, columns = whole.shape
    return (whole.float().view(rows, scale.shape[1], -1) * scale.float()[..., None]).view(rows, columns)


def write_compact(state: dict[str, Tensor], folder: Path) -> None:
    """Write weights as int8 and float16 in files of limited size."""
    stored: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in state.items():
        if value.data_ptr() in seen:  # tied weights are stored once, and tied again when loaded
            continue
        seen.add(value.data_ptr())
        # Positions are few, and what is lost in them is lost in every text.
        exact = "position" in name or "relative_attention" in name
        if value.ndim == 2 and value.is_floating_point() and not exact:
            stored[name], stored[name + SCALE] = quantize(value)
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
    places: dict[str, str] = {}
    for number, part in enumerate(files, 1):
        file = f"compact-{number}-of-{len(files)}.safetensors"
        save_file(part, folder / file)
        places |= dict.fromkeys(part, file)
    (folder / INDEX).write_text(json.dumps({"group": GROUP, "tensors": places}, indent=1), encoding="utf-8")


def read_compact(index: Path, fetch: Callable[[str], Path | None]) -> dict[str, Tensor]:
    """The weights of a compact model, in float32.

    Args:
        index: Its `compact.json`.
        fetch: From the name of a file of the model to its path, None where there is none.
    """
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["tensors"]
        files = sorted(set(places.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{index} is damaged.") from error
    stored: dict[str, Tensor] = {}
    for file in files:
        path = fetch(file)
        if path is None:
            raise CheckpointError(f"{index} names {file}, which is missing.")
        with safe_open(path, framework="pt") as tensors:
            stored |= {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    state: dict[str, Tensor] = {}
    for name, value in stored.items():
        if name + SCALE in stored:
            state[name] = dequantize(value, stored[name + SCALE])
        elif not name.endswith(SCALE):
            state[name] = value.float() if value.is_floating_point() else value
    return state
