"""BM25 over words."""

from __future__ import annotations

from textnuggets.search.bm25 import BM25

TEXTS = ["rain fell all night", "the river rose", "rain on the river"]


def test_the_nearest_texts_come_first():
    assert BM25(TEXTS).nearest(["river rose", "night rain"], 2).tolist() == [[1, 2], [0, 2]]


def test_a_query_without_known_words_gets_the_first_texts():
    assert BM25(TEXTS).nearest(["zebra", "the", "", "night"], 2)[:3].tolist() == [[0, 1]] * 3
