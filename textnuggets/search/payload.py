"""Packing of nuggets into the payload of a stored document: everything but their unit vectors."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import IndexFileError, InputError
from textnuggets.io.documents import is_unicode
from textnuggets.io.hashing import short_digest
from textnuggets.model.layout import Layout
from textnuggets.model.nuggets import Nuggets

DEEPEST = 100  # levels of nested metadata; parsers of JSON have limits, too
INT, FLOAT = np.dtype("<i4"), np.dtype("<f4")


def pack_layout(nuggets: Nuggets, norms: NDArray[np.floating]) -> str:
    """Return windows, positions, spans, scores and the norms of the vectors as base64."""
    parts = [
        np.array([len(nuggets.windows)], INT),
        nuggets.windows.astype(INT),
        nuggets.positions.astype(INT),
        nuggets.spans.astype(INT),
        nuggets.scores.astype(FLOAT),
        norms.astype(FLOAT),
    ]
    return b64encode(b"".join(part.tobytes() for part in parts)).decode("ascii")


def pack_metadata(metadata: Mapping[str, Any]) -> str:
    """Return metadata as JSON; raise InputError, with the key, if it would not come back as it is.

    It is stored as text because engines round integers beyond 64 bits and some floats.
    """
    for key, value in metadata.items():
        try:
            _check_json({key: value}, DEEPEST + 1)
        except (TypeError, ValueError) as error:
            raise InputError(f"{key!r} ({error}).") from error
    return json.dumps(metadata, sort_keys=True, ensure_ascii=False)


def digest_content(metadata: str, text: str) -> str:
    """Return a hash of a document's packed metadata and text."""
    return short_digest([f"{metadata}\n{text}".encode()], 12)


def _check_json(value: Any, depth: int) -> None:
    """Raise TypeError or ValueError if a value is not made of the types of JSON, or nested too deeply."""
    if not depth:
        raise ValueError(f"it has more than {DEEPEST} levels")
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("keys must be strings")
        for item in (*value, *value.values()):
            _check_json(item, depth - 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_json(item, depth - 1)
    elif isinstance(value, str) and not is_unicode(value):
        raise ValueError("it contains an unpaired surrogate")
    else:
        json.dumps(
            value, allow_nan=False
        )  # which refuses other types, infinities and integers of thousands of digits


def unpack_metadata(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata in the payload of a document; raise IndexFileError if it is damaged."""
    stored = payload.get("metadata") or {}  # an object in indexes of early versions
    try:
        metadata = json.loads(stored) if isinstance(stored, str) else stored
    except (ValueError, RecursionError) as error:
        raise IndexFileError(f"its metadata is damaged ({error}).") from error
    if not isinstance(metadata, dict):
        raise IndexFileError(f"its metadata is damaged ({type(metadata).__name__} instead of an object).")
    return metadata


def pack_spaces(layout: Layout) -> list[Any]:
    """Return the white space of a text as JSON."""
    return [list(layout.words), [list(run) for run in layout.runs]]


def unpack_windows(packed: Any) -> NDArray[np.int32]:
    """Return the `(w, 4)` windows of a stored document, as in `Nuggets`; raise IndexFileError if they are damaged.

    Args:
        packed: Result of `pack_layout`.
    """
    try:
        data = b64decode(packed, validate=True)
        count = int(np.frombuffer(data, INT, 1)[0])
        return np.frombuffer(data, INT, 4 * count, INT.itemsize).reshape(-1, 4)
    except (ValueError, IndexError, TypeError, OverflowError) as error:
        raise IndexFileError(f"its layout is damaged ({error}).") from error


def unpack_layout(packed: Any, vectors: NDArray[np.float32], spaces: list[Any] | None = None) -> Nuggets:
    """Return the nuggets of a stored document; their tokens are not stored and are empty strings.

    Args:
        packed: Result of `pack_layout`.
        vectors: `(k, d)` unit vectors.
        spaces: Result of `pack_spaces`; none by default.
    """
    try:
        data = b64decode(packed, validate=True)
        count, k = int(np.frombuffer(data, INT, 1)[0]), len(vectors)
        sizes = np.cumsum([1, 4 * count, k, 2 * k, k, k]) * 4
        if len(data) != sizes[-1]:
            raise ValueError(f"{len(data)} bytes for {k} vectors")
        windows, positions, spans, scores, norms = (
            np.frombuffer(data[start:end], kind)
            for start, end, kind in zip(sizes[:-1], sizes[1:], (INT, INT, INT, FLOAT, FLOAT), strict=True)
        )
        words, runs = spaces or ((), ())
        layout = Layout(tuple(words), tuple((int(before), str(space)) for before, space in runs))
    except (ValueError, IndexError, TypeError, OverflowError) as error:
        raise IndexFileError(f"its layout is damaged ({error}).") from error
    return Nuggets(
        vectors=np.asarray(vectors * norms[:, None], dtype=np.float32),
        scores=scores.astype(np.float32),
        positions=positions.astype(np.int64),
        spans=spans.astype(np.int64).reshape(-1, 2),
        tokens=("",) * k,
        windows=windows.astype(np.int64).reshape(-1, 4),
        layout=layout,
    )
