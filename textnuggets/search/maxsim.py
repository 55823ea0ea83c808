"""How well a document answers each nugget of a query: mean-MaxSim (Eq. 10), and two other ways to pair vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import InputError, MissingExtraError
from textnuggets.model.nuggets import Nuggets

Vectors = Nuggets | NDArray[np.floating]
Unit = NDArray[np.float32]  # (k, d) vectors of length 1, from `unit`
BLOCK = 16_000_000  # cosines held at a time: 64 MB


def maxsim(query: Vectors | Sequence[Vectors], document: Vectors | Sequence[Vectors]) -> Any:
    """The mean over query vectors of the best cosine with a document vector (Eq. 10).

    Args:
        query: `Nuggets` or a `(k, d)` array; or a list of them.
        document: The same.

    Returns:
        A float for one query and one document; else an array with one axis for each list:
        `(queries, documents)`, `(queries,)` or `(documents,)`.
    """
    queries, one_query = _as_list(query, "query")
    documents, one_document = _as_list(document, "document")
    widths = sorted({item.shape[1] for item in (*queries, *documents)})
    if len(widths) > 1:
        raise InputError(f"vectors of {widths} dimensions do not compare: different models made them.")
    matrix = _maxsim_matrix(queries, documents)
    if one_query and one_document:
        return float(matrix[0, 0])
    if one_query:
        return matrix[0]
    return matrix[:, 0] if one_document else matrix


def one_way(query: Unit, documents: Sequence[Unit]) -> NDArray[np.float32]:
    """Mean-MaxSim of a query with documents: the paper's."""
    return _maxsim_matrix([query], documents)[0]


def both_ways(query: Unit, documents: Sequence[Unit]) -> NDArray[np.float32]:
    """The mean of mean-MaxSim in both directions."""
    back = _maxsim_matrix(documents, [query])[:, 0]
    return np.asarray((one_way(query, documents) + back) / 2, dtype=np.float32)


def matching(query: Unit, documents: Sequence[Unit]) -> NDArray[np.float32]:
    """Maximum-weight matching: every vector answers at most one; summed, and divided by the query's number."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise MissingExtraError("scipy", "evaluate", "maximum-weight matching") from error
    scores = []
    for document in documents:
        cosines = query @ document.T
        rows, columns = linear_sum_assignment(cosines, maximize=True)
        scores.append(float(cosines[rows, columns].sum()) / len(query))
    return np.array(scores, dtype=np.float32)


Similarity = Callable[[Unit, Sequence[Unit]], NDArray[np.float32]]
SIMILARITIES: dict[str, Similarity] = {"maxsim": one_way, "symmetric": both_ways, "matching": matching}


def _maxsim_matrix(queries: Sequence[Unit], documents: Sequence[Unit]) -> NDArray[np.float32]:
    """All queries against all documents, a block of documents at a time."""
    if not queries or not documents:
        return np.zeros((len(queries), len(documents)), dtype=np.float32)
    stacked = np.concatenate(queries)  # (all query vectors, d)
    lengths = np.array([len(q) for q in queries])
    starts = np.cumsum([0, *lengths[:-1]])
    scores = np.empty((len(queries), len(documents)), dtype=np.float32)
    most = max(1, BLOCK // len(stacked))  # document vectors a block
    first = 0
    while first < len(documents):
        last, size = first + 1, len(documents[first])
        while last < len(documents) and size + len(documents[last]) <= most:
            size += len(documents[last])
            last += 1
        block = documents[first:last]
        cosines = stacked @ np.concatenate(block).T
        edges = np.cumsum([0, *(len(d) for d in block[:-1])])
        best = np.maximum.reduceat(cosines, edges, axis=1)  # (all query vectors, block)
        scores[:, first:last] = np.add.reduceat(best, starts, axis=0) / lengths[:, None]
        first = last
    return scores


def _as_list(vectors: Vectors | Sequence[Vectors], name: str) -> tuple[list[Unit], bool]:
    """Unit vectors of each text, and whether a single text was given."""
    if isinstance(vectors, (Nuggets, np.ndarray)):
        return [unit(vectors, name)], True
    return [unit(item, f"{name} {i}") for i, item in enumerate(vectors)], False


def unit(vectors: Vectors, name: str) -> Unit:
    """Vectors of length 1, or an InputError that calls them by `name`."""
    array = np.asarray(vectors.vectors if isinstance(vectors, Nuggets) else vectors, np.float32)
    if array.ndim != 2 or not len(array):
        raise InputError(f"{name} must be (k, d) vectors with k > 0, got shape {array.shape}.")
    if not np.isfinite(array).all():
        raise InputError(f"{name} holds values that are not finite numbers.")
    tiny = np.finfo(np.float32).tiny
    # Scaled first: the square of a very large or small number is out of range.
    array = array / np.maximum(np.abs(array).max(axis=1, keepdims=True), tiny)
    return array / np.maximum(np.linalg.norm(array, axis=1, keepdims=True), tiny)
