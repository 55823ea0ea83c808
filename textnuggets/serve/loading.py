"""Load the models of a server, and its index with the model it was built with."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from textnuggets.errors import CheckpointError, IndexFileError, MissingExtraError
from textnuggets.model.fingerprint import has_fingerprint, lasting_name
from textnuggets.model.interface import TextInterface
from textnuggets.onnx.load import load_encoder
from textnuggets.search.index import NuggetIndex
from textnuggets.serve.models import public_name
from textnuggets.shipped import DEFAULT, locate

DECODER = "reconstruct"  # served by default, in addition to the model for comparing


def load_all(
    names: Sequence[str] | None, index_path: str | None
) -> tuple[dict[str, TextInterface], NuggetIndex | None]:
    """Return the models by the names they are served under, and the opened index.

    Args:
        names: Models to load; the default models if None or empty.
        index_path: The index, if any. Its model is loaded only if no other model has the same weights.
    """
    index = None if index_path is None else NuggetIndex.open(index_path, read_only=True)
    models: dict[str, TextInterface] = {}

    def add(name: str) -> TextInterface:
        short = public_name(name)
        loaded = models[name if short in models else short] = _load(name, index)
        return loaded

    try:
        for name in dict.fromkeys(map(lasting_name, names or _defaults(index))):
            add(name)
        if index is not None:
            expected = index.manifest.fingerprint
            same = (model for model in models.values() if has_fingerprint(model, expected))
            model = next(same, None) or add(index.manifest.model)
            index.close()
            index = NuggetIndex.open(index.place, model, read_only=True)
    except BaseException:
        if index is not None:
            index.close()
        raise
    return models, index


def _defaults(index: NuggetIndex | None) -> list[str]:
    """Return the default models: one for comparing and, if it is installed, one with a decoder."""
    comparing = DEFAULT if index is None else index.manifest.model
    try:
        locate(DECODER)
    except MissingExtraError as error:
        print(f"note: only {comparing!r} is served; {error}", file=sys.stderr)
        return [comparing]
    return [comparing, DECODER]


def _load(name: str, index: NuggetIndex | None) -> TextInterface:
    try:
        return load_encoder(name)
    except CheckpointError as error:
        if index is None or name != index.manifest.model:
            raise
        raise IndexFileError(
            f"{index.place} was built with {name!r}, which cannot be loaded: if it was moved, set --model to its new path."
        ) from error
