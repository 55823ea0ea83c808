"""Perplexity by what a decoder-only model keeps of the past."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.causal.setting import SEGMENT, spoil, tiny_base
from tests.tiny import CORPUS, tiny_tokenizer
from textnuggets.causal.cache import NuggetCache
from textnuggets.causal.config import CausalConfig
from textnuggets.causal.modeling import CausalNuggetLM
from textnuggets.errors import ConfigError, InputError
from textnuggets.evaluate.cached_context import (
    columns_of,
    evaluate_cached_context,
    read_beginnings,
    to_markdown,
)

TOKENS = 60


@pytest.fixture(scope="module")
def lm() -> CausalNuggetLM:
    return CausalNuggetLM(
        CausalConfig(segment=SEGMENT, ratio=0.25, scorer_layer=2, rank=2), tiny_base(), tiny_tokenizer()
    ).eval()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    texts = [" ".join(CORPUS[(i + j) % 5] for j in range(4)) for i in range(3)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*texts, CORPUS[0]]))
    return path


@pytest.fixture(scope="module")
def articles(corpus):
    return read_beginnings(str(corpus), tiny_tokenizer(), TOKENS, None)


def test_only_texts_with_enough_tokens_are_read_up_to_their_last_whole_word(corpus, articles):
    assert [len(article.ids) for article in articles] == [TOKENS] * 3
    for article in articles:
        assert not article.counted[article.words[-1] :].any()
    assert len(read_beginnings(str(corpus), tiny_tokenizer(), TOKENS, 2)) == 2
    with pytest.raises(InputError, match="no text has 5000 tokens: choose fewer"):
        read_beginnings(str(corpus), tiny_tokenizer(), 5000, None)


@pytest.mark.parametrize("ratio", [0.25, 0.5, 1.0])
def test_a_window_has_as_many_columns_as_the_cache_of_nuggets(lm, ratio):
    cache = NuggetCache(lm, ratio)
    found = []
    with torch.no_grad():
        for token in range(TOKENS):
            lm.read(torch.tensor([[5 + token % 9]]), cache)
            found.append(cache.columns)
    assert columns_of(TOKENS, SEGMENT, ratio).tolist() == found


def test_untrained_systems_agree_where_they_must(lm, articles):
    found = {item["system"]: item for item in evaluate_cached_context(lm, articles, [1.0])}
    full = found["full"]["word_perplexity"]["value"]
    for name in ("nuggets", "window", "every"):
        assert found[name]["word_perplexity"]["value"] == pytest.approx(full, rel=1e-4)
        assert found[name]["cache"] == TOKENS
    assert found["segments"]["word_perplexity"]["value"] != pytest.approx(full, rel=1e-3)
    assert found["nuggets"]["closed"]["value"] == pytest.approx(1, abs=1e-2)


def test_at_a_lower_ratio_all_systems_differ_and_are_compared(lm, articles):
    results = evaluate_cached_context(lm, articles, [0.25, 0.5])
    assert [(item["system"], item["ratio"]) for item in results] == [
        ("full", None), ("segments", None), ("nuggets", 0.25), ("window", 0.25), ("every", 0.25),
        ("nuggets", 0.5), ("window", 0.5), ("every", 0.5),
    ]  # fmt: skip
    values = [item["word_perplexity"]["value"] for item in results]
    assert len(set(values)) == len(values)
    by_name = {(item["system"], item["ratio"]): item for item in results}
    nuggets, window = by_name["nuggets", 0.25], by_name["window", 0.25]
    assert nuggets["cache"] == window["cache"] < by_name["nuggets", 0.5]["cache"] < TOKENS
    change = nuggets["against"]["window"]["value"]
    assert change == pytest.approx(
        nuggets["word_perplexity"]["value"] / window["word_perplexity"]["value"], rel=1e-4
    )
    assert len({item["words"] for item in results}) == 1
    assert "two segments and nuggets | 0.25" in to_markdown({"results": results})


def test_the_rivals_are_the_bare_base(articles):
    measured = []
    for trained in (False, True):
        config = CausalConfig(segment=SEGMENT, ratio=0.25, scorer_layer=2, rank=2)
        lm = CausalNuggetLM(config, tiny_base(), tiny_tokenizer())
        if trained:
            spoil(lm)
        results = evaluate_cached_context(lm, articles)
        measured.append({item["system"]: item["word_perplexity"]["value"] for item in results})
        assert lm.selector.name == "spread"
    for name in ("full", "segments", "window", "every"):
        assert measured[0][name] == pytest.approx(measured[1][name], rel=1e-6)
    assert measured[0]["nuggets"] != pytest.approx(measured[1]["nuggets"], rel=1e-3)


def test_words_of_the_first_two_segments_are_not_scored(lm, articles):
    (item, *_) = evaluate_cached_context(lm, articles)
    first = [int(article.words[2 * SEGMENT - 1]) + 1 for article in articles]
    counted = [article.counted[start:].sum() for article, start in zip(articles, first, strict=True)]
    assert [count for _, count in item["by_article"]] == counted
    assert item["words"] == np.sum(counted)


def test_texts_too_short_or_too_long_are_refused(lm, corpus):
    short = read_beginnings(str(corpus), tiny_tokenizer(), 2 * SEGMENT, None)
    with pytest.raises(ConfigError, match="tokens must be a whole number of at least 18, got 16"):
        evaluate_cached_context(lm, short)
