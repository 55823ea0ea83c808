"""Which weights made these vectors?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from transformers import PreTrainedModel

from textnuggets.io.hashing import short_digest
from textnuggets.shipped import DEFAULT, shipped_name

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
    return short_digest(_content(model), 8)


def _content(model: PreTrainedModel) -> Iterator[bytes]:
    yield repr([getattr(model.config, key, None) for key in SETTINGS]).encode()
    for key, value in model.state_dict().items():
        sample = value.detach().flatten()[:: max(1, value.numel() // 1024)]
        yield f"{key} {tuple(value.shape)}".encode() + sample.float().cpu().numpy().tobytes()


def lasting_name(name: str | Path | None) -> str:
    """Return what files call a model, so that it is found from elsewhere: a shipped one by its name, a folder by its
    absolute path."""
    if name is None:
        return DEFAULT
    shipped = shipped_name(name)
    if shipped is not None:
        return shipped
    path = Path(name)
    return str(path.resolve()) if path.is_dir() else str(name)
