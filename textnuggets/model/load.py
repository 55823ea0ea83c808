"""Loading a nugget model, ready to use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from textnuggets.errors import ConfigError
from textnuggets.model.checkpoint import best_device
from textnuggets.model.modeling import NuggetModel
from textnuggets.shipped import DEFAULT


def load_nugget_model(
    name: str | Path | None = None, device: str | None = None, **options: Any
) -> NuggetModel:
    """Load a nugget model and put it where it runs best; `textnuggets.load` also loads language models.

    Args:
        name: A shipped model (`search` by default), a folder or a hub id.
        device: Where it runs; a GPU if there is one, by default.
        options: For transformers' `from_pretrained`: `dtype`, `attn_implementation`, ... On a CPU the dtype is
            float32 by default, whatever the weights are stored as: CPUs are many times slower in half precision.
    """
    name = DEFAULT if name is None else name
    if "device_map" in options:
        if device is not None:
            raise ConfigError("give a device or a device_map, not both.")
        return NuggetModel.from_pretrained(name, **options)
    where = best_device(device)
    if where.type == "cpu":
        options = {"dtype": torch.float32, **options}
    return NuggetModel.from_pretrained(name, **options).to(where)  # type: ignore[arg-type]
