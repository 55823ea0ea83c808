"""The manifest of an index: its settings, and the model whose vectors it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from textnuggets.errors import IndexFileError
from textnuggets.model.fingerprint import fingerprint, has_fingerprint, lasting_name
from textnuggets.model.load import load_nugget_model
from textnuggets.model.modeling import NuggetModel

FORMAT = 1


@dataclass
class Manifest:
    """Settings of an index, stored as `index.json` or as the metadata of a collection."""

    format: int
    """Version of the index format."""
    version: str
    """Version of textnuggets that created the index."""
    model: str
    """Folder or name of the model."""
    fingerprint: str
    """Fingerprint of the model: its weights, tokenizer and settings."""
    ratio: float
    """Compression ratio of documents."""
    query_ratio: float
    """Compression ratio of queries."""
    dimensions: int
    """Dimensions of a vector."""
    dtype: str
    """Data type of the stored vectors: float32, float16 or int8."""
    store_text: bool
    """Whether texts are stored with the vectors."""
    engine: str
    """Folder of the engine's files."""

    @classmethod
    def read(cls, data: Any, place: str) -> Manifest:
        """Return the manifest in parsed JSON; raise IndexFileError if it is not one.

        Args:
            data: Parsed JSON.
            place: Folder or address of the index, for error messages.
        """
        try:
            if data["format"] != FORMAT:
                raise IndexFileError(
                    f"{place} is an index of format {data['format']}; this version reads format {FORMAT}."
                )
            return cls(**data)
        except (KeyError, TypeError) as error:
            raise IndexFileError(f"{place} is not an index of nuggets ({error}).") from error


def load_model_of(manifest: Manifest, place: str) -> NuggetModel:
    """Load the model that an index names; raise IndexFileError if its weights have changed."""
    model = load_nugget_model(manifest.model)
    _check_weights(manifest, model, manifest.model, place)
    return model


def check_model(manifest: Manifest, model: NuggetModel, place: str) -> None:
    """Raise IndexFileError if an index was built with other weights: vectors of two models cannot be compared."""
    _check_weights(manifest, model, lasting_name(model.config.name_or_path or "the model given"), place)


def _check_weights(manifest: Manifest, model: NuggetModel, name: str | None, place: str) -> None:
    if not has_fingerprint(model, str(manifest.fingerprint)):
        raise IndexFileError(
            f"{place} was built with {manifest.model!r} (fingerprint {manifest.fingerprint}); {name!r} has other "
            f"weights or another tokenizer ({fingerprint(model)})."
        )
