"""Baselines that reduce the token vectors of a text to fewer vectors without learning.

Each maps `(n, d)` token vectors and a number k to `(k, d)` vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import MissingExtraError
from textnuggets.model.maxsim import unit

Array = NDArray[np.float32]
Reduce = Callable[[Array, int], Array]


def all_tokens(vectors: Array, k: int) -> Array:  # noqa: ARG001
    """Return every token, as ColBERT and the paper's ColBART do."""
    return vectors


def mean(vectors: Array, k: int) -> Array:  # noqa: ARG001
    """Return one vector, the mean of all."""
    return vectors.mean(0, keepdims=True)


def every(vectors: Array, k: int) -> Array:
    """Return the last token of each of k equal chunks."""
    return vectors[_edges(len(vectors), k)[1:] - 1]


def random(vectors: Array, k: int) -> Array:
    """Return k random tokens; the draw depends only on the length of the text and k."""
    chosen = np.random.default_rng([len(vectors), k]).choice(len(vectors), k, replace=False)
    return vectors[np.sort(chosen)]


def chunk_means(vectors: Array, k: int) -> Array:
    """Return the mean of each of k equal chunks."""
    edges = _edges(len(vectors), k)
    return np.stack([vectors[start:end].mean(0) for start, end in pairwise(edges)])


def ward(vectors: Array, k: int) -> Array:
    """Return the means of k clusters of unit vectors, by Ward's method on cosine distances.

    This is the token pooling of sentence-transformers.
    """
    units = unit(vectors, "text")
    if k >= len(units):
        return units
    try:
        from scipy.cluster.hierarchy import fcluster, linkage
        from scipy.spatial.distance import squareform
    except ImportError as error:
        raise MissingExtraError("scipy", "evaluate", "Ward clustering") from error
    distances = squareform(np.clip(1 - units @ units.T, 0, 2), checks=False)
    labels = fcluster(linkage(distances, method="ward"), k, criterion="maxclust")
    return np.stack([units[labels == label].mean(0) for label in np.unique(labels)])


def _edges(n: int, k: int) -> NDArray[np.int64]:
    """Return the k + 1 boundaries of k equal chunks of n tokens."""
    return np.arange(k + 1) * n // k


REDUCTIONS: dict[str, Reduce] = {
    "all": all_tokens,
    "mean": mean,
    "every": every,
    "random": random,
    "chunk_means": chunk_means,
    "ward": ward,
}
