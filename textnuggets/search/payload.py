"""What an index keeps of nuggets besides their unit vectors, in few bytes: where they stand, and what decoding needs."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import IndexFileError
from textnuggets.model.layout import Layout
from textnuggets.model.nuggets import Nuggets

WHOLE, REAL = np.dtype("<i4"), np.dtype("<f4")


def pack_layout(nuggets: Nuggets, norms: NDArray[np.floating]) -> str:
    """Windows, positions, spans, scores and the vectors' lengths, as text that JSON can hold."""
    parts = [
        np.array([len(nuggets.windows)], WHOLE),
        nuggets.windows.astype(WHOLE),
        nuggets.positions.astype(WHOLE),
        nuggets.spans.astype(WHOLE),
        nuggets.scores.astype(REAL),
        norms.astype(REAL),
    ]
    return b64encode(b"".join(part.tobytes() for part in parts)).decode("ascii")


def pack_spaces(layout: Layout) -> list[Any]:
    """Return what a text's white space was, as JSON can hold it."""
    return [list(layout.words), [list(run) for run in layout.runs]]


def unpack_layout(packed: str, vectors: NDArray[np.float32], spaces: list[Any] | None = None) -> Nuggets:
    """The nuggets again, from their layout, their `(k, d)` unit vectors and their white space; without the tokens'
    names."""
    try:
        data = b64decode(packed, validate=True)
        count, k = int(np.frombuffer(data, WHOLE, 1)[0]), len(vectors)
        sizes = np.cumsum([1, 4 * count, k, 2 * k, k, k]) * 4
        if len(data) != sizes[-1]:
            raise ValueError(f"{len(data)} bytes for {k} vectors")
        windows, positions, spans, scores, norms = (
            np.frombuffer(data[start:end], kind)
            for start, end, kind in zip(sizes[:-1], sizes[1:], (WHOLE, WHOLE, WHOLE, REAL, REAL), strict=True)
        )
        words, runs = spaces or ((), ())
        layout = Layout(tuple(words), tuple((int(before), str(space)) for before, space in runs))
    except (ValueError, IndexError, TypeError) as error:
        raise IndexFileError(f"a document of the index is damaged ({error}).") from error
    return Nuggets(
        vectors=np.asarray(vectors * norms[:, None], dtype=np.float32),
        scores=scores.astype(np.float32),
        positions=positions.astype(np.int64),
        spans=spans.astype(np.int64).reshape(-1, 2),
        tokens=("",) * k,
        windows=windows.astype(np.int64).reshape(-1, 4),
        layout=layout,
    )
