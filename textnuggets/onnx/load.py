"""Load a model that encodes: an exported one with onnxruntime, any other with torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from textnuggets.errors import CheckpointError, ConfigError
from textnuggets.model.interface import TextInterface
from textnuggets.model.load import load_nugget_model
from textnuggets.onnx.config import is_onnx
from textnuggets.shipped import DEFAULT, locate

Backend = Literal["torch", "onnx"]


def load_encoder(name: str | Path | None = None, device: str | None = None, **options: Any) -> TextInterface:
    """Load a model by shipped name, folder or hub id; `search` by default.

    Args:
        name: Shipped model, hub id, or folder of a nugget model or of its export.
        device: Torch device; an exported model runs on the CPU.
        options: Arguments of transformers' `from_pretrained`; an exported model takes none.
    """
    location = locate(DEFAULT if name is None else name)
    if not is_onnx(location):
        return load_nugget_model(location, device, **options)
    if device not in (None, "cpu"):
        raise ConfigError(
            f"the ONNX model {location!r} runs on the CPU, not on {device!r}: leave device out."
        )
    if options:
        raise ConfigError(
            f"the ONNX model {location!r} takes no option {next(iter(options))!r}: leave it out."
        )
    from textnuggets.onnx.model import OnnxModel

    return OnnxModel(location)


def check_backend(location: str, backend: str | None) -> None:
    """Raise an error if a model is not for the backend that was asked for; None fits any."""
    if backend not in (None, "torch", "onnx"):
        raise ConfigError(f"backend must be 'torch' or 'onnx', got {backend!r}.")
    if backend == "onnx" and not is_onnx(location):
        raise CheckpointError(
            f"{location!r} is not an ONNX model: export it first, with: textnuggets export {location} -o OUT --onnx"
        )
    if backend == "torch" and is_onnx(location):
        raise CheckpointError(f"{location!r} is an ONNX model: load it without backend='torch'.")
