"""Load a nugget model onto its device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from textnuggets.errors import ConfigError
from textnuggets.shipped import DEFAULT

if TYPE_CHECKING:
    from textnuggets.model.modeling import NuggetModel


def load_nugget_model(
    name: str | Path | None = None, device: str | None = None, **options: Any
) -> NuggetModel:
    """Load a nugget model onto a device; `textnuggets.load` also loads language models.

    Args:
        name: Shipped model, folder or hub id; `search` by default.
        device: Torch device; the accelerator if there is one, else the CPU, by default.
        options: Arguments of transformers' `from_pretrained`, such as `dtype` or `attn_implementation`. On a CPU the
            default dtype is float32 whatever the stored dtype, because half precision is many times slower there.
    """
    import torch  # here, so that commands check their arguments first

    from textnuggets.model.checkpoint import best_device
    from textnuggets.model.modeling import NuggetModel

    name = DEFAULT if name is None else name
    if "device_map" in options:
        if device is not None:
            raise ConfigError("give a device or a device_map, not both.")
        return NuggetModel.from_pretrained(name, **options)
    target = best_device(device)
    if target.type == "cpu":
        options = {"dtype": torch.float32, **options}
    return NuggetModel.from_pretrained(name, **options).to(target)  # type: ignore[arg-type]
