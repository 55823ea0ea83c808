"""Which weights made these vectors?"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from transformers import PreTrainedModel

from textnuggets.model.checkpoint import SHIPPED, find_shipped

SETTINGS = (
    "scorer_layer",
    "selector",
    "gather",
    "feedback",
    "window",
)  # what decides vectors besides weights


def fingerprint(model: PreTrainedModel) -> str:
    """A few digits that change with whatever changes the vectors, and not with the name of the model's folder.

    Of every tensor about a thousand values are taken: training moves them all.
    """
    digest = blake2b(digest_size=8)
    digest.update(repr([getattr(model.config, key, None) for key in SETTINGS]).encode())
    for key, value in model.state_dict().items():
        sample = value.detach().flatten()[:: max(1, value.numel() // 1024)]
        digest.update(f"{key} {tuple(value.shape)}".encode() + sample.float().cpu().numpy().tobytes())
    return digest.hexdigest()


def lasting_name(name: str | Path | None) -> str:
    """What files call a model, so that it is found from elsewhere: a folder by its whole path, one that comes with
    the package by its name."""
    if name is None:
        return "default"
    path = Path(name)
    if path.resolve().parent == SHIPPED.resolve() or find_shipped(str(name)) is not None:
        return path.name
    return str(path.resolve()) if path.is_dir() else str(name)
