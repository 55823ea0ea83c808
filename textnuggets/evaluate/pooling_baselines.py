"""Baselines that reduce the vectors of a text, in number or in precision, without learning.

Each of `REDUCTIONS` maps `(n, d)` token vectors and a number k to `(k, d)` vectors. `PRECISIONS` maps vectors to what is
left of them when they are stored. `split_words` makes the passages of a text that are encoded by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import MissingExtraError
from textnuggets.model.maxsim import unit
from textnuggets.search.manifest import bytes_per_vector

Array = NDArray[np.float32]
Reduce = Callable[[Array, int], Array]
WORD = re.compile(r"\S+")
_HALF = (0.1284, 0.3881, 0.6568, 0.9424, 1.2562, 1.6181, 2.0690, 2.7326)
LEVELS = np.array([*(-level for level in reversed(_HALF)), *_HALF], dtype=np.float32)


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
    "bits": all_tokens,  # stored as `signs`
}


# ---------------------------------------------------------------- precision


def half(vectors: Array) -> Array:
    """Return vectors rounded to float16."""
    return vectors.astype(np.float16).astype(np.float32)


def eight_bits(vectors: Array) -> Array:
    """Return vectors rounded to 255 steps from minus to plus the largest number of each vector."""
    largest = np.abs(vectors).max(1, keepdims=True)
    step = np.where(largest > 1e-30, largest, 1) / 127  # smaller ones have too few digits
    return np.asarray(np.rint(vectors / step) * step, dtype=np.float32)


def four_bits(vectors: Array) -> Array:
    """Return vectors of the same lengths whose numbers, after a rotation, have 16 levels.

    A random rotation makes the numbers of a vector nearly normal, and these are the best levels for a normal
    distribution (Max, 1960). Indexes store `int4` by the same method, with another rotation.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    rotation = _rotation(vectors.shape[1])
    rotated = vectors @ rotation / np.where(lengths > 0, lengths, 1) * np.sqrt(vectors.shape[1])
    nearest = LEVELS[np.searchsorted((LEVELS[1:] + LEVELS[:-1]) / 2, rotated)]
    nearest *= lengths / np.linalg.norm(nearest, axis=1, keepdims=True)
    return np.asarray(nearest @ rotation.T, dtype=np.float32)


@lru_cache(maxsize=4)
def _rotation(dimensions: int) -> Array:
    """Return a random rotation, always the same."""
    normal = np.random.default_rng(0).normal(size=(dimensions, dimensions))
    return np.asarray(np.linalg.qr(normal)[0], dtype=np.float32)


def signs(vectors: Array) -> Array:
    """Return the sign of every number, as vectors of length 1; zero counts as positive.

    The dot product of two of these is 1 - 2h/d, where h is their Hamming distance. With a vector that is not rounded,
    such as a query, it is the sum of its numbers with the signs of the other, divided by the root of d.
    """
    return np.where(vectors < 0, -1, 1).astype(np.float32) / np.float32(np.sqrt(vectors.shape[1]))


PRECISIONS: dict[str, Callable[[Array], Array]] = {
    "float32": lambda vectors: vectors,
    "float16": half,
    "int8": eight_bits,
    "int4": four_bits,
    "bit": signs,
}


def bytes_of_vector(dimensions: int, dtype: str) -> int:
    """Return the bytes of a stored vector, as in an index; bits are packed, eight to a byte."""
    return -(-dimensions // 8) if dtype == "bit" else bytes_per_vector(dimensions, dtype)


# ---------------------------------------------------------------- passages


def split_words(text: str, words: int) -> list[str]:
    """Split a text into the fewest passages of at most so many words, all of about the same length."""
    spans = [match.span() for match in WORD.finditer(text)]
    if not spans:
        return [text]
    edges = _edges(len(spans), -(-len(spans) // words))
    return [text[spans[start][0] : spans[end - 1][1]] for start, end in pairwise(edges)]


def count_words(text: str) -> int:
    """Return the number of words of a text."""
    return sum(1 for _ in WORD.finditer(text))


def words_per_passage(counts: Sequence[int], passages: float) -> int:
    """Return the fewest words per passage that give texts at most so many passages on average.

    Args:
        counts: Number of words of each text.
        passages: Mean number of passages; a text has at least one.
    """
    lengths = np.maximum(np.asarray(counts), 1)
    low, high = 1, int(lengths.max())
    while low < high:
        middle = (low + high) // 2
        if (-(-lengths // middle)).mean() <= passages:
            high = middle
        else:
            low = middle + 1
    return low
