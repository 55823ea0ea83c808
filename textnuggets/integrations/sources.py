"""Hits of an index as sources: a text, a score and metadata, as the retrievers of other libraries return them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from textnuggets.search.index import NuggetIndex
from textnuggets.search.results import Hit

Place = NuggetIndex | str | Path


class Source(NamedTuple):
    """A document of an index, or a passage of one."""

    id: str
    """Id of the document; of a passage, with its characters, as in `letter:120-180`."""
    text: str
    """Empty if the index stores no texts and its model cannot decode them."""
    score: float
    metadata: dict[str, Any]
    """The document's metadata, and `document_id`, `score` and `spans`: the characters `[start, end]` of the passages that
    match best, best first, or of the passage itself."""


def open_index(index: Place) -> NuggetIndex:
    """Return an open index, or open the one at a folder or address."""
    return index if isinstance(index, NuggetIndex) else NuggetIndex.open(index, read_only=True)


def find_sources(
    index: NuggetIndex,
    query: str,
    k: int,
    filter: Mapping[str, Any] | None,
    min_score: float | None,
    passages: bool,
) -> list[Source]:
    """Search an index and return whole documents, or their passages, best first; arguments as for `NuggetIndex.search`.

    Args:
        index: Index to search.
        query: Any text.
        k: Number of documents at most.
        filter: Metadata that documents must have.
        min_score: Score that documents must have at least.
        passages: Whether to return the passages that match best, up to three of each document, instead of documents.
    """
    hits = index.search(query, k, filter, min_score, full=not passages)
    if not passages:
        return [_document(hit) for hit in hits]
    found = [source for hit in hits for source in _passages(hit)]
    return sorted(found, key=lambda source: -source.score)


def _document(hit: Hit) -> Source:
    spans = [list(passage.span) for passage in hit.passages]
    about = {**hit.metadata, "document_id": hit.id, "score": hit.score, "spans": spans}
    return Source(hit.id, hit.text or "", hit.score, about)


def _passages(hit: Hit) -> Iterator[Source]:
    for span, score, text in hit.passages:
        about = {**hit.metadata, "document_id": hit.id, "score": score, "spans": [list(span)]}
        yield Source(f"{hit.id}:{span[0]}-{span[1]}", text or "", score, about)
