"""Pools: means of consecutive vectors of a document, by which the first stage of a search finds candidates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

POOL = 16  # vectors at most in a pool: those of a passage
LARGE = 100_000  # documents from which on an index has a first stage, if nothing else was asked for
CANDIDATES = 400  # documents that the first stage proposes at least ...
FACTOR = 8  # ... or this many for each document asked for


def pool(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the `(p, d)` means of equal runs of at most `POOL` of `(k, d)` unit vectors, with length 1."""
    return _means(vectors, -(-len(vectors) // POOL))


def pool_query(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean of the vectors of a query, with length 1, as `(1, d)`."""
    return _means(vectors, 1)


def _means(vectors: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    starts = np.arange(count) * len(vectors) // count
    sums = np.add.reduceat(vectors.astype(np.float64), starts)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return (sums / np.where(lengths > 0, lengths, 1)).astype(np.float32)
