"""The manifest of an index: its settings, and the model whose vectors it holds."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any

from textnuggets.errors import IndexFileError
from textnuggets.model.fingerprint import fingerprint, has_fingerprint, lasting_name
from textnuggets.model.interface import TextInterface
from textnuggets.onnx.load import load_encoder

FORMAT = 2  # of new indexes
READABLE = (1, 2)  # the first has other keys in its documents
BITS = {"float32": 32, "float16": 16, "int8": 8, "int4": 4}  # of a number, by dtype
SCALED = ("int8", "int4")  # dtypes that also store the length of each vector, as float32
CHECK = "run 'textnuggets index check' on the index"


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
    """Data type of the stored vectors: float32, float16, int8 or int4."""
    store_text: bool
    """Whether texts are stored with the vectors."""
    engine: str
    """Folder of the engine's files."""
    words: bool = False
    """Whether the words of documents are stored for hybrid searches."""
    first_stage: bool | None = False
    """Whether searches have a first stage; None if the number of documents decides when the index is compacted."""
    pooled: bool = False
    """Whether the engine's files have the vectors of a first stage."""
    decodable: bool = True
    """Whether everything is stored that decoding needs: scores and norms of nuggets."""
    complete: bool = True
    """Whether the index has been created; otherwise its engine is what an interrupted creation left."""
    obsolete: str | None = None
    """Folder of the engine's files before a compaction, or of an unfinished compaction; it is to be removed."""
    checksums: dict[str, list[Any]] | None = None
    """Size and digest of each file when the index was compacted; None if it has been written to since."""

    @classmethod
    def read(cls, data: Any, place: str) -> Manifest:
        """Return the manifest in parsed JSON; raise IndexFileError if it is not one.

        Args:
            data: Parsed JSON.
            place: Folder or address of the index, for error messages.
        """
        if not isinstance(data, dict) or "format" not in data:
            raise IndexFileError(f"{place} is not an index of nuggets: its manifest has no format.")
        if data["format"] not in READABLE:
            raise IndexFileError(
                f"{place} is an index of format {data['format']!r}; this version reads {READABLE}."
            )
        known = {field.name: field for field in fields(cls)}
        for name, field in known.items():
            if name not in data and field.default is MISSING:
                raise IndexFileError(f"{place}: its manifest is damaged: {name!r} is missing.")
        for name, value in data.items():
            if name not in known:
                raise IndexFileError(f"{place}: its manifest is damaged: {name!r} is unknown.")
            if not _VALID[name](value):
                raise IndexFileError(f"{place}: its manifest is damaged: {name!r} is {str(value)[:80]!r}.")
        return cls(**data)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_ratio(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1


def _is_engine(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"engine-[1-9][0-9]{0,8}", value) is not None


def _are_checksums(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(item, list) and len(item) == 2 and isinstance(item[0], int) and isinstance(item[1], str)
        for item in value.values()
    )


_VALID: dict[str, Callable[[Any], bool]] = {
    "format": lambda value: type(value) is int,
    "version": _is_text,
    "model": _is_text,
    "fingerprint": _is_text,
    "ratio": _is_ratio,
    "query_ratio": _is_ratio,
    "dimensions": lambda value: type(value) is int and value > 0,
    "dtype": lambda value: isinstance(value, str) and value in BITS,
    "store_text": _is_bool,
    "engine": _is_engine,
    "words": _is_bool,
    "first_stage": lambda value: value is None or _is_bool(value),
    "pooled": _is_bool,
    "decodable": _is_bool,
    "complete": _is_bool,
    "obsolete": lambda value: value is None or _is_engine(value),
    "checksums": lambda value: value is None or _are_checksums(value),
}
"""What each field of a manifest may be. Folders have plain names, so that nothing outside the index is removed."""


def default_dtype(can_decode: bool) -> str:
    """Return the dtype of a new index: four bits, or float16 if the model has a decoder, which needs exact vectors."""
    return "float16" if can_decode else "int4"


def bytes_per_vector(dimensions: int, dtype: str) -> int:
    """Return the bytes of a stored vector: its numbers and, for some dtypes, its length."""
    return -(-dimensions * BITS[dtype] // 8) + (4 if dtype in SCALED else 0)


def load_model_of(manifest: Manifest, place: str) -> TextInterface:
    """Load the model that an index names; raise IndexFileError if its weights have changed."""
    model = load_encoder(manifest.model)
    _check_weights(manifest, model, manifest.model, place)
    return model


def check_model(manifest: Manifest, model: TextInterface, place: str) -> None:
    """Raise IndexFileError if an index was built with other weights: vectors of two models cannot be compared."""
    _check_weights(manifest, model, lasting_name(model.config.name_or_path or "the model given"), place)


def _check_weights(manifest: Manifest, model: TextInterface, name: str | None, place: str) -> None:
    if not has_fingerprint(model, str(manifest.fingerprint)):
        raise IndexFileError(
            f"{place} was built with {manifest.model!r} (fingerprint {manifest.fingerprint}); {name!r} has other "
            f"weights or another tokenizer ({fingerprint(model)})."
        )
