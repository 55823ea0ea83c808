"""BM25 of texts with and without words."""

from __future__ import annotations

import pytest

from textnuggets.search.bm25 import BM25


@pytest.mark.parametrize("query", ["", "the", "-1", "zebra"])
def test_a_query_without_known_words_scores_nothing(query):
    engine = BM25(["the cat", "a dog ran"])
    assert engine.scores(query).tolist() == [0, 0]
    assert engine.nearest([query, "dog"], 2).tolist() == [[0, 1], [1, 0]]


def test_texts_without_words_can_be_indexed():
    assert BM25(["", "the", "a dog ran"]).nearest(["dog"], 1).tolist() == [[2]]
    assert BM25(["", "the"]).scores("dog").tolist() == [0, 0]


def test_the_nearest_texts_come_first():
    texts = ["rain fell all night", "the river rose", "rain on the river"]
    assert BM25(texts).nearest(["river rose", "night rain"], 2).tolist() == [[1, 2], [0, 2]]
