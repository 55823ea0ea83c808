"""BM25, by `bm25s`: the baseline of every table, and where hard negatives come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from textnuggets.errors import MissingExtraError


class BM25:
    """Texts by the words they share with a query."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.count = len(texts)
        self._engine = _bm25s().BM25()
        self._engine.index(words_of(texts), show_progress=False)

    def nearest(self, queries: Sequence[str], k: int) -> np.ndarray:
        """`(queries, k)` the numbers of the best texts, best first."""
        words = words_of(queries)
        found, _ = self._engine.retrieve(words, k=min(k, self.count), show_progress=False)
        return np.asarray(found)

    def scores(self, query: str) -> np.ndarray:
        """`(texts,)` the score of every text."""
        (words,) = words_of([query])
        return np.asarray(self._engine.get_scores(words), dtype=np.float32)


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError as error:
        raise MissingExtraError("bm25s", "evaluate", "BM25") from error
    return bm25s


def words_of(texts: Sequence[str]) -> list[list[str]]:
    """Lower-case words without English stop words; a text of nothing else keeps a word that no other has."""
    found: list[list[str]] = _bm25s().tokenize(
        list(texts), stopwords="en", return_ids=False, show_progress=False
    )
    return [words or [""] for words in found]
