"""Searching an index: from a query to hits with the passages that matched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import IndexFileError, InputError
from textnuggets.io.documents import is_unicode
from textnuggets.model.interface import TextInterface
from textnuggets.model.maxsim import unit
from textnuggets.model.nuggets import Nuggets
from textnuggets.search.backends.base import Backend, Query, Words, rescaled, with_score
from textnuggets.search.checking import check_document, check_score
from textnuggets.search.labels import labels_of
from textnuggets.search.manifest import CHECK
from textnuggets.search.passages import find_passages
from textnuggets.search.payload import unpack_metadata
from textnuggets.search.results import Hit, Match


def check_query(query: str) -> None:
    """Raise InputError if a query is empty or not a string."""
    if not isinstance(query, str) or not query.strip():
        raise InputError("the query is empty: there is nothing to search for.")


def check_min_score(min_score: float | None) -> None:
    """Raise InputError if a threshold is not a number from -1 to 1, as scores are."""
    if min_score is None:
        return
    if isinstance(min_score, bool) or not isinstance(min_score, Real) or not -1 <= min_score <= 1:
        raise InputError(f"min_score must be a number from -1 to 1, got {min_score!r}.")


def find_hits(
    backend: Backend,
    model: TextInterface,
    query: Nuggets,
    k: int,
    filter: Mapping[str, Any],
    min_score: float | None,
    full: bool,
    words: Words | None,
    exact: bool,
) -> list[Hit]:
    """Return the k best documents for an encoded query, best first; raise IndexFileError if one is damaged.

    Args:
        backend: Storage of an open index.
        model: Decodes documents whose text is not stored, if it has a decoder.
        query: Nuggets of the query.
        k: Number of documents at most.
        filter: Metadata that documents must have.
        min_score: Score that documents must have at least; None for any.
        full: Whether hits have the whole text of their document.
        words: Words of the query, by which to rank documents, too.
        exact: Whether to score every document, also if the index has a first stage.
    """
    query_vectors = unit(query, "query")
    wanted = Query(query_vectors, _filter_labels(filter), words, exact)
    found = backend.engine.find(wanted, k)
    for item in found:
        check_score(item.document, item.score / len(query_vectors), backend.manifest)
    try:
        checked = {item.document.id: check_document(item.document, backend.manifest) for item in found}
    except IndexFileError as error:
        raise IndexFileError(f"{str(error).removesuffix('.')}: {CHECK}.") from error
    if backend.manifest.dtype == "int4":
        # The engine does not scale vectors, so its scores are a little too high or too low.
        found = [with_score(rescaled(item.document), wanted) for item in found]
        if words is None:
            found.sort(key=lambda item: item.score, reverse=True)
    if min_score is not None:
        found = [item for item in found if item.score / len(query_vectors) >= min_score]
    documents = [item.document for item in found]
    nuggets = [checked[item.id] for item in documents]
    stored_texts = [item.payload.get("text") for item in documents]
    texts = _fill_in_texts(model, nuggets, stored_texts) if full else [None] * len(found)
    query_segments = _segment_spans(query)
    hits = []
    for item, its_nuggets, stored, text in zip(found, nuggets, stored_texts, texts, strict=True):
        cosines, segments = query_vectors @ item.document.vectors.T, _segment_spans(its_nuggets)
        hits.append(
            Hit(
                id=item.document.id,
                score=item.score / len(query_vectors),
                matches=_matches(query_segments, segments, cosines),
                passages=find_passages(stored, segments, cosines),
                metadata=unpack_metadata(item.document.payload),
                text=text,
                regenerated=stored is None and text is not None,
            )
        )
    return hits


def _filter_labels(filter: Mapping[str, Any]) -> list[str]:
    """Return the labels of a filter; raise InputError if it has a value that cannot be compared."""
    for key, value in filter.items():
        if not isinstance(key, str):
            raise InputError(f"the filter has the key {key!r}: keys are strings.")
        items = value if isinstance(value, list | tuple) else [value]
        if not items or not all(item is None or isinstance(item, str | int | float) for item in items):
            raise InputError(
                f"the filter {key!r} has the value {value!r}: give a string, number, boolean or null, or a list of them."
            )
    labels = labels_of(filter)
    if not all(map(is_unicode, labels)):
        raise InputError("the filter contains an unpaired surrogate, so it is not valid Unicode.")
    return labels


def _matches(
    query: NDArray[np.int64], document: NDArray[np.int64], cosines: NDArray[np.floating]
) -> list[Match]:
    """Return the best match of each nugget of the query, from the spans of their segments."""
    best = cosines.argmax(1).tolist()
    spans = zip(query.tolist(), document[best].tolist(), strict=True)
    return [
        Match((a, b), (c, d), float(score))
        for ((a, b), (c, d)), score in zip(spans, cosines.max(1), strict=True)
    ]


def _fill_in_texts(
    model: TextInterface, nuggets: Sequence[Nuggets], texts: Sequence[str | None]
) -> list[str | None]:
    """Return the texts, with missing ones decoded from their nuggets if the model has a decoder."""
    missing = [item for item, text in zip(nuggets, texts, strict=True) if text is None]
    if not missing or not model.can_decode:
        return list(texts)
    decoded = iter(model.reconstruct(missing, num_beams=1))
    return [next(decoded) if text is None else text for text in texts]


def _segment_spans(nuggets: Nuggets) -> NDArray[np.int64]:
    """Return the `(k, 2)` spans of the nuggets' segments.

    The segment of a token at the start or end of a text may be empty; the nearest segment that is not empty then takes
    its place, preferably one before it.
    """
    segments = nuggets.segments
    filled = np.flatnonzero(segments[:, 0] < segments[:, 1])
    if not len(filled):
        return np.zeros_like(segments)
    before = np.searchsorted(filled, np.arange(len(segments)), side="right") - 1
    return segments[filled[np.maximum(before, 0)]]
