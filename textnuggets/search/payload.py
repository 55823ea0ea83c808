"""Packing of nuggets into the payload of a stored document: everything but their unit vectors."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import IndexFileError
from textnuggets.model.layout import Layout
from textnuggets.model.nuggets import Nuggets

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


def pack_spaces(layout: Layout) -> list[Any]:
    """Return the white space of a text as JSON."""
    return [list(layout.words), [list(run) for run in layout.runs]]


def unpack_layout(packed: str, vectors: NDArray[np.float32], spaces: list[Any] | None = None) -> Nuggets:
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
