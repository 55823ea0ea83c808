"""Similarity of two texts' vectors: mean-MaxSim (Eq. 10), its symmetric form and maximum-weight matching."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import InputError, MissingExtraError, TextnuggetsWarning
from textnuggets.model.nuggets import Nuggets

if TYPE_CHECKING:
    from torch import Tensor

Vectors: TypeAlias = "Nuggets | NDArray[np.floating] | Tensor"
Unit = NDArray[np.float32]  # (k, d) vectors of length 1, from `unit`
NOT_COMPARABLE = "these vectors were trained to be decoded, not to be compared: use textnuggets.load('search') to compare texts."
BLOCK = 16_000_000  # maximum number of cosines in memory: 64 MB
SAFE = (1e-15, 1e15)  # norms whose squares are well within the range of float32


@overload
def maxsim(query: Vectors, document: Vectors) -> float: ...
@overload
def maxsim(query: Vectors, document: Sequence[Vectors]) -> NDArray[np.float32]: ...
@overload
def maxsim(query: Sequence[Vectors], document: Vectors | Sequence[Vectors]) -> NDArray[np.float32]: ...
def maxsim(query: Vectors | Sequence[Vectors], document: Vectors | Sequence[Vectors]) -> Any:
    """Return the mean over query vectors of the maximum cosine with a document vector (Eq. 10).

    Args:
        query: `Nuggets`, a `(k, d)` array or tensor, or a list of these.
        document: The same.

    Returns:
        A float for a single query and document; otherwise an array with one axis per list:
        `(queries, documents)`, `(queries,)` or `(documents,)`.
    """
    for given in (query, document):
        several = [given] if isinstance(given, Nuggets) else given
        if isinstance(several, Sequence) and any(
            isinstance(one, Nuggets) and not one.comparable for one in several
        ):
            warnings.warn(NOT_COMPARABLE, TextnuggetsWarning, stacklevel=2)
            break
    queries, one_query = _as_list(query, "query")
    documents, one_document = _as_list(document, "document")
    widths = sorted({item.shape[1] for item in (*queries, *documents)})
    if len(widths) > 1:
        raise InputError(f"vectors of {widths} dimensions do not compare: encode all texts with one model.")
    units = [unit(item, _name("query", i, one_query)) for i, item in enumerate(queries)]
    matrix = _maxsim_matrix(units, documents, one_document)
    if one_query and one_document:
        return float(matrix[0, 0])
    if one_query:
        return matrix[0]
    return matrix[:, 0] if one_document else matrix


def one_way(query: Unit, documents: Sequence[Unit]) -> NDArray[np.float32]:
    """Return the mean-MaxSim of a query with each document, as in the paper."""
    return _maxsim_matrix([query], documents)[0]


def both_ways(query: Unit, documents: Sequence[Unit]) -> NDArray[np.float32]:
    """Return the average of mean-MaxSim in both directions."""
    back = _maxsim_matrix(documents, [query])[:, 0]
    return np.asarray((one_way(query, documents) + back) / 2, dtype=np.float32)


def matching(query: Unit, documents: Sequence[Unit]) -> NDArray[np.float32]:
    """Return the maximum-weight matching of a query with each document, divided by the number of query vectors."""
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


def _maxsim_matrix(
    queries: Sequence[Unit], documents: Sequence[NDArray[np.floating]], one_document: bool = False
) -> NDArray[np.float32]:
    """Return mean-MaxSim `(queries, documents)`, computed in blocks of documents; these need not be normalized."""
    if not queries or not documents:
        return np.zeros((len(queries), len(documents)), dtype=np.float32)
    stacked = np.concatenate(queries)  # (all query vectors, d)
    lengths = np.array([len(q) for q in queries])
    starts = np.cumsum([0, *lengths[:-1]])
    scores = np.empty((len(queries), len(documents)), dtype=np.float32)
    most = max(1, BLOCK // len(stacked))  # document vectors per block
    first = 0
    while first < len(documents):
        last, size = first + 1, len(documents[first])
        while last < len(documents) and size + len(documents[last]) <= most:
            size += len(documents[last])
            last += 1
        block = documents[first:last]
        names = [_name("document", i, one_document) for i in range(first, last)]
        cosines = _cosines(stacked, block, names)
        edges = np.cumsum([0, *(len(d) for d in block[:-1])])
        best = np.maximum.reduceat(cosines, edges, axis=1)  # (all query vectors, block)
        scores[:, first:last] = np.add.reduceat(best, starts, axis=0) / lengths[:, None]
        first = last
    return scores


def _cosines(
    units: Unit, documents: Sequence[NDArray[np.floating]], names: Sequence[str]
) -> NDArray[np.float32]:
    """Return the cosines `(query vectors, all document vectors)`.

    Dividing the products by the norms is cheaper than normalizing the document vectors.
    """
    stacked = np.concatenate(documents, dtype=np.float32, casting="same_kind")
    norms = np.sqrt(np.einsum("ij,ij->i", stacked, stacked))
    if ((norms > SAFE[0]) & (norms < SAFE[1])).all():
        products = units @ stacked.T
        products /= norms
        return products
    # Zero, extreme or non-finite vectors need `unit`, which rescales and checks them.
    normalized = np.concatenate([unit(item, name) for item, name in zip(documents, names, strict=True)])
    return units @ normalized.T


def _as_list(vectors: Vectors | Sequence[Vectors], name: str) -> tuple[list[NDArray[np.floating]], bool]:
    """Return the `(k, d)` arrays of the texts, and whether a single text was given."""
    one = not isinstance(vectors, Sequence) or isinstance(vectors, Nuggets)
    items: Sequence[Any] = [vectors] if one else vectors  # type: ignore[assignment]
    arrays = [_as_array(item) for item in items]
    for i, array in enumerate(arrays):
        _check_shape(array, _name(name, i, one))
    return arrays, one


def _as_array(vectors: Any) -> NDArray[np.floating]:
    """Return the vectors of one text as an array, from any device."""
    if isinstance(vectors, Nuggets):
        return vectors.vectors
    return np.asarray(vectors.detach().float().cpu() if hasattr(vectors, "detach") else vectors)


def _name(side: str, number: int, one: bool) -> str:
    """Return the name of a text for error messages."""
    return side if one else f"{side} {number}"


def _check_shape(array: NDArray[np.floating], name: str) -> None:
    if array.ndim != 2 or not len(array):
        raise InputError(f"{name} must be (k, d) vectors with k > 0, got shape {array.shape}.")


def unit(vectors: Vectors, name: str) -> Unit:
    """Return vectors normalized to length 1; raise InputError, with `name`, if they are invalid."""
    array = _as_array(vectors).astype(np.float32)
    _check_shape(array, name)
    if not np.isfinite(array).all():
        raise InputError(f"{name} holds values that are not finite numbers.")
    tiny = np.finfo(np.float32).tiny
    # Scaled first, because the square of a very large or small number is out of range.
    array = array / np.maximum(np.abs(array).max(axis=1, keepdims=True), tiny)
    return array / np.maximum(np.linalg.norm(array, axis=1, keepdims=True), tiny)
