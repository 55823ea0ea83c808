"""BM25 with `bm25s`: the baseline for search, and the source of hard negatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from textnuggets.errors import MissingExtraError


class BM25:
    """BM25 index of texts, held in memory."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.count = len(texts)
        self._engine = _bm25s().BM25()
        self._engine.index(words_of(texts), show_progress=False)

    def nearest(self, queries: Sequence[str], k: int) -> np.ndarray:
        """Return the indices of the k best texts for each query, best first, as `(queries, k)`.

        For a query without any word of the texts, these are the first texts.
        """
        k = min(k, self.count)
        known = self._known(queries)
        nearest = np.tile(np.arange(k), (len(known), 1))
        found = [row for row, words in enumerate(known) if words]
        if found:
            nearest[found], _ = self._engine.retrieve([known[row] for row in found], k=k, show_progress=False)
        return nearest

    @property
    def nbytes(self) -> int:
        """Bytes of the scores of all words in all texts, a sparse matrix."""
        return sum(part.nbytes for part in self._engine.scores.values() if isinstance(part, np.ndarray))

    def scores(self, query: str) -> np.ndarray:
        """Return the score of every text, as `(texts,)`."""
        (words,) = self._known([query])
        if not words:
            return np.zeros(self.count, dtype=np.float32)
        return np.asarray(self._engine.get_scores(words), dtype=np.float32)

    def _known(self, queries: Sequence[str]) -> list[list[str]]:
        """Return the words of queries that occur in the texts; `bm25s` raises an error if there are none."""
        vocabulary = self._engine.vocab_dict
        return [[word for word in words if word and word in vocabulary] for words in words_of(queries)]


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError as error:
        raise MissingExtraError("bm25s", "evaluate", "BM25") from error
    return bm25s


def words_of(texts: Sequence[str]) -> list[list[str]]:
    """Return the lower-case words of each text without English stop words; one empty word if none are left."""
    tokenized: list[list[str]] = _bm25s().tokenize(
        list(texts), stopwords="en", return_ids=False, show_progress=False
    )
    return [words or [""] for words in tokenized]
