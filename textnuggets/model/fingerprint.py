"""Fingerprints and names that identify the model of stored vectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from transformers import PreTrainedModel

from textnuggets.io.hashing import short_digest
from textnuggets.shipped import DEFAULT, shipped_name

# Settings that affect the vectors.
SETTINGS = ("scorer_layer", "selector", "gather", "feedback", "window")


def fingerprint(model: PreTrainedModel) -> str:
    """Return a hash of the weights and settings that affect the vectors, independent of the model's folder.

    About a thousand values of every tensor are hashed, which is enough because training changes all of them.
    """
    return short_digest(_content(model), 8)


def _content(model: PreTrainedModel) -> Iterator[bytes]:
    yield repr([getattr(model.config, key, None) for key in SETTINGS]).encode()
    for key, value in model.state_dict().items():
        sample = value.detach().flatten()[:: max(1, value.numel() // 1024)]
        yield f"{key} {tuple(value.shape)}".encode() + sample.float().cpu().numpy().tobytes()


def lasting_name(name: str | Path | None) -> str:
    """Return a name valid from any directory: of a shipped model its name, of a folder its absolute path."""
    if name is None:
        return DEFAULT
    shipped = shipped_name(name)
    if shipped is not None:
        return shipped
    path = Path(name)
    return str(path.resolve()) if path.is_dir() else str(name)
