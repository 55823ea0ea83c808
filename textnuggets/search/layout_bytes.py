"""Packing of the layout of nuggets into few bytes: windows, positions and spans, and what decoding needs.

Columns of numbers follow one another, each as one byte that names its type and then its numbers:

windows     the number of windows; nuggets and tokens of each; their spans, in two columns
positions   differences of consecutive positions
spans       characters from the end of the previous span to the start of the next; lengths
scores      } only if the model has a decoder
norms       }
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import IndexFileError
from textnuggets.model.layout import Layout
from textnuggets.model.nuggets import Nuggets

PLACES, EARLY = "places", "layout"  # keys of the payload: the second one in documents of early versions
TYPES = tuple(map(np.dtype, ("<u1", "<u2", "<i4", "<f2", "<f4")))
BROKEN = (ValueError, IndexError, TypeError, OverflowError)  # raised by what follows for damaged bytes


def pack_layout(nuggets: Nuggets, norms: NDArray[np.floating], decodable: bool) -> str:
    """Return windows, positions and spans as base64.

    Args:
        nuggets: Nuggets of a document.
        norms: `(k,)` norms of their vectors.
        decodable: Whether to store scores and norms, too, which only decoding needs.
    """
    columns = [
        np.array([len(nuggets.windows)]),
        nuggets.window_counts,
        nuggets.window_tokens,
        *_steps(nuggets.window_spans),
        np.diff(nuggets.positions, prepend=0),
        *_steps(nuggets.spans),
    ]
    packed = [_pack_integers(column) for column in columns]
    if decodable:
        packed += [_pack_floats(nuggets.scores), _pack_floats(norms)]
    return b64encode(b"".join(packed)).decode("ascii")


def _steps(spans: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the gap before each of `(n, 2)` spans, and its length."""
    edges = np.diff(spans.astype(np.int64).ravel(), prepend=0)
    return edges[::2], edges[1::2]


def _spans(gaps: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return spans from their `_steps`."""
    return np.stack([gaps, lengths], axis=1).ravel().cumsum().reshape(-1, 2)


def _pack_integers(column: NDArray[Any]) -> bytes:
    """Return integers in the smallest type that holds all of them."""
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    code = 0 if low >= 0 and high < 2**8 else 1 if low >= 0 and high < 2**16 else 2
    return bytes([code]) + column.astype(TYPES[code]).tobytes()


def _pack_floats(column: NDArray[np.floating]) -> bytes:
    """Return numbers as float16, or as float32 if one of them is too large or too small for float16."""
    sizes = np.abs(column[column != 0])
    code = 3 if ((sizes > 1e-4) & (sizes < 6e4)).all() else 4
    return bytes([code]) + column.astype(TYPES[code]).tobytes()


class _Columns:
    """Reader of packed columns, one after the other."""

    def __init__(self, packed: Any) -> None:
        self.data, self.at = b64decode(packed, validate=True), 0

    def read(self, count: int, is_float: bool = False) -> NDArray[Any]:
        """Return the next column of so many numbers; raise one of `BROKEN` if it is not there."""
        kind = TYPES[self.data[self.at]]
        if (kind.kind == "f") is not is_float or count < 0:
            raise ValueError(f"{count} numbers of type {kind}")
        column = np.frombuffer(self.data, kind, count, self.at + 1) if count else np.zeros(0, kind)
        self.at += 1 + column.nbytes
        return column.astype(np.float32 if is_float else np.int64)

    def read_windows(self) -> NDArray[np.int64]:
        """Return the `(w, 4)` windows, which come first."""
        count = int(self.read(1)[0])
        counts, tokens = self.read(count), self.read(count)
        return np.column_stack([counts, tokens, _spans(self.read(count), self.read(count))])

    @property
    def is_read(self) -> bool:
        """Whether no bytes are left."""
        return self.at == len(self.data)


def unpack_windows(payload: Mapping[str, Any]) -> NDArray[np.int64]:
    """Return the `(w, 4)` windows of a stored document, as in `Nuggets`; raise IndexFileError if they are damaged."""
    try:
        if EARLY in payload:
            return _early_columns(payload[EARLY], None)[0]
        return _Columns(payload.get(PLACES)).read_windows()
    except BROKEN as error:
        raise IndexFileError(f"its layout is damaged ({error}).") from error


def unpack_layout(payload: Mapping[str, Any], vectors: NDArray[np.float32]) -> Nuggets:
    """Return the nuggets of a stored document; their tokens are not stored and are empty strings.

    Args:
        payload: Payload of the document.
        vectors: `(k, d)` unit vectors.
    """
    k = len(vectors)
    try:
        if EARLY in payload:
            windows, positions, spans, scores, norms = _early_columns(payload[EARLY], k)
        else:
            windows, positions, spans, scores, norms = _columns(payload.get(PLACES), k)
        words, runs = payload.get("spaces") or ((), ())
        layout = Layout(tuple(words), tuple((int(before), str(space)) for before, space in runs))
    except BROKEN as error:
        raise IndexFileError(f"its layout is damaged ({error}).") from error
    return Nuggets(
        vectors=np.asarray(vectors * norms[:, None], dtype=np.float32),
        scores=scores,
        positions=positions,
        spans=spans,
        tokens=("",) * k,
        windows=windows,
        layout=layout,
    )


def _columns(packed: Any, k: int) -> tuple[NDArray[Any], ...]:
    """Return windows, positions, spans, scores and norms; raise one of `BROKEN` if they are damaged."""
    columns = _Columns(packed)
    windows = columns.read_windows()
    positions = columns.read(k).cumsum()
    spans = _spans(columns.read(k), columns.read(k))
    scores, norms = np.zeros(k, np.float32), np.ones(k, np.float32)
    if not columns.is_read:
        scores, norms = columns.read(k, is_float=True), columns.read(k, is_float=True)
    if not columns.is_read:
        raise ValueError(f"{len(columns.data)} bytes for {k} vectors")
    return windows, positions, spans, scores, norms


def _early_columns(packed: Any, k: int | None) -> tuple[NDArray[Any], ...]:
    """Return the columns as early versions stored them, four bytes a number; the windows alone without k."""
    data = b64decode(packed, validate=True)
    count = int(np.frombuffer(data, "<i4", 1)[0])
    windows = np.frombuffer(data, "<i4", 4 * count, 4).reshape(-1, 4).astype(np.int64)
    if k is None:
        return (windows,)
    if len(data) != 4 + 16 * count + 20 * k:
        raise ValueError(f"{len(data)} bytes for {k} vectors")
    rest = np.frombuffer(data, "<i4", 5 * k, 4 + 16 * count)
    numbers = rest[: 3 * k].astype(np.int64)
    scores, norms = rest[3 * k :].view("<f4").astype(np.float32).reshape(2, k)
    return windows, numbers[:k], numbers[k:].reshape(k, 2), scores, norms
