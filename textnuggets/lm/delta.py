"""Language models stored as what differs from a nugget model that the reader has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from textnuggets.errors import CheckpointError
from textnuggets.lm.config import NuggetLMConfig
from textnuggets.model import quantized
from textnuggets.model.fingerprint import fingerprint
from textnuggets.model.load import load_nugget_model
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.tokenization import fetch

if TYPE_CHECKING:
    from textnuggets.lm.modeling import NuggetLM

Made = TypeVar("Made", bound="NuggetLM")


def write_difference(lm: NuggetLM, folder: Path, base: str, original: NuggetModel) -> None:
    """Write the configuration, and as int8 every tensor that `original`, found by the name `base`, has otherwise or not."""
    folder.mkdir(parents=True, exist_ok=True)
    theirs = original.state_dict()
    changed = {
        name: value
        for name, value in lm.state_dict().items()
        if (same := theirs.get(name.removeprefix("nugget."))) is None
        or not torch.equal(same.to(value), value)
    }
    lm.config.base, lm.config.base_weights = base, fingerprint(original)
    try:
        lm.config.save_pretrained(str(folder))
    finally:
        lm.config.base = lm.config.base_weights = None
    quantized.write_compact(changed, folder)


def read_difference(
    kind: type[Made], name: str, config: NuggetLMConfig, hub: dict[str, Any], **options: Any
) -> Made:
    """The base model's weights, and those that differ."""
    # The dtype afterwards: weights are compared and filled in as they are stored.
    dtype = options.pop("dtype", options.pop("torch_dtype", None))
    if isinstance(dtype, str):
        dtype = None if dtype == "auto" else getattr(torch, dtype)
    base = load_nugget_model(config.base, **{key: value for key, value in options.items() if key not in hub})
    if (weights := fingerprint(base)) != config.base_weights:
        raise CheckpointError(
            f"{name!r} goes with the model {config.base!r} of weights {config.base_weights}; this one has {weights}."
        )
    index = fetch(name, quantized.INDEX, **hub)
    if index is None:
        raise CheckpointError(f"{name!r} lacks {quantized.INDEX}: it is not whole.")
    # From here on it has all its weights, and is saved with them.
    config.base = config.base_weights = None
    base.config.ratio = config.nugget.ratio  # type: ignore[union-attr]
    config.nugget = base.config
    made = kind(config, base)
    changed = quantized.read_compact(index, lambda file: fetch(name, file, **hub))
    unknown = made.load_state_dict(changed, strict=False).unexpected_keys
    if unknown:
        raise CheckpointError(f"{name!r} has weights that fit nowhere: {', '.join(unknown[:3])}.")
    made.to(device=base.device, dtype=base.dtype if dtype is None else dtype)  # type: ignore[call-arg]
    return made.eval()
