"""Words of texts as sparse vectors, whose products are BM25 scores once the engine has weighted them by rarity."""

from __future__ import annotations

from functools import cache
from typing import Any

from textnuggets.errors import MissingExtraError
from textnuggets.search.backends.base import Words


@cache
def _bm25() -> Any:
    try:
        import qdrant_edge
    except ImportError as error:
        raise MissingExtraError("qdrant-edge-py", "search", "words in an index") from error
    return qdrant_edge.Bm25()


def words_of_document(text: str) -> Words:
    """Return the stems of the words of a document, numbered by hash, with weights that grow with their count."""
    found = _bm25().embed_document(text)
    return Words(list(found.indices), list(found.values))


def words_of_query(text: str) -> Words:
    """Return the stems of the words of a query; English stop words have none."""
    found = _bm25().embed_query(text)
    return Words(list(found.indices), list(found.values))
