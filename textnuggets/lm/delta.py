"""Checkpoints that store only the weights in which a language model differs from its nugget model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import torch

from textnuggets.errors import CheckpointError
from textnuggets.io.disk import make_folder, sync_files
from textnuggets.lm.config import NuggetLMConfig
from textnuggets.lm.decoder import SegmentDecoder
from textnuggets.model import quantized
from textnuggets.model.fingerprint import fingerprint, has_fingerprint
from textnuggets.model.load import load_nugget_model
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.tokenization import fetch
from textnuggets.model.trial import check_finite

Model = TypeVar("Model", bound=SegmentDecoder)


def write_difference(lm: SegmentDecoder, folder: Path, base: str, original: NuggetModel) -> None:
    """Write the configuration and, as int8, every tensor that differs from `original` or is missing there.

    Args:
        lm: The language model to write.
        folder: Folder to write to.
        base: Name under which `original` can be loaded.
        original: Nugget model to compare with.
    """
    make_folder(folder)
    original_weights = original.state_dict()
    changed = {
        name: value
        for name, value in lm.state_dict().items()
        if (same := original_weights.get(name.removeprefix("nugget."))) is None
        or not torch.equal(same.to(value), value)
    }
    lm.config.base, lm.config.base_weights = base, fingerprint(original)
    try:
        lm.config.save_pretrained(str(folder))
    finally:
        lm.config.base = lm.config.base_weights = None
    quantized.write_compact(changed, folder)
    sync_files(folder)


def read_difference(
    kind: type[Model], name: str, config: NuggetLMConfig, hub: dict[str, Any], **options: Any
) -> Model:
    """Load the base model, and replace the weights that differ.

    Args:
        kind: Class of the model to return.
        name: Folder or hub id of the checkpoint.
        config: Configuration of the checkpoint.
        hub: Options for downloading the checkpoint, which do not apply to the base model.
        options: Options for loading the base model.
    """
    # Converted to dtype at the end: weights must be compared and replaced in the precision they are stored in.
    dtype = options.pop("dtype", options.pop("torch_dtype", None))
    if isinstance(dtype, str):
        dtype = None if dtype == "auto" else getattr(torch, dtype)
    if not isinstance(config.base, str) or config.nugget is None:
        raise CheckpointError(
            f"{name!r}: 'base' and 'nugget' of its config.json are not a name and settings."
        )
    try:
        base = load_nugget_model(
            _locate_base(name, config.base),
            **{key: value for key, value in options.items() if key not in hub},
        )
    except CheckpointError as error:
        raise CheckpointError(f"{name!r} needs the model {config.base!r}: {error}") from error
    if not has_fingerprint(base, str(config.base_weights)):
        raise CheckpointError(
            f"{name!r} needs the model {config.base!r} with the fingerprint {config.base_weights}, but found "
            f"{fingerprint(base)}."
        )
    index = fetch(name, quantized.INDEX, **hub)
    if index is None:
        raise CheckpointError(f"{name!r} is incomplete: {quantized.INDEX} is missing.")
    # The loaded model has all its weights and no longer depends on the base.
    config.base = config.base_weights = None
    base.config.ratio = config.nugget.ratio
    config.nugget = base.config
    model = kind(config, base)
    changed = quantized.read_compact(index, lambda file: fetch(name, file, **hub))
    unknown = model.load_state_dict(changed, strict=False).unexpected_keys
    if unknown:
        raise CheckpointError(f"{name!r} has unexpected weights: {', '.join(unknown[:3])}.")
    check_finite(model, name)
    model.check_room(config.history)
    model.to(device=base.device, dtype=base.dtype if dtype is None else dtype)  # type: ignore[call-arg]
    return model.eval()


def _locate_base(name: str, base: str) -> str:
    """Return the folder of the base model beside a checkpoint, if there is one, or else its name unchanged."""
    beside = Path(name).parent / base
    return str(beside) if Path(base).name == base and (beside / "config.json").is_file() else base
