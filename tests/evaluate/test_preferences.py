"""Shares of chosen tokens, for selectors whose choice is known."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.tiny import CORPUS, tiny_model, tiny_tokenizer
from textnuggets.errors import ConfigError
from textnuggets.evaluate.preferences import evaluate_preferences, favoured, group_of, to_markdown
from textnuggets.evaluate.sample import Sample
from textnuggets.report.figures import draw_preferences, save_figure


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(CORPUS * 10) + "\n")
    return str(path)


def evaluate(texts, tmp_path, **settings):
    return evaluate_preferences(
        tiny_model(**settings), Sample([texts], 1000, cache=str(tmp_path / "cache")), max_tokens=64
    )


def test_shares_are_counts_of_the_text_and_of_the_nuggets(texts, tmp_path):
    found = evaluate(texts, tmp_path, selector="chunking")
    counts = Counter(token for text in CORPUS * 10 for token in tiny_tokenizer()(text).input_ids)
    # Packing cuts "It stood empty." from its text where both do not fit, which adds two special tokens.
    by_token = {item["token"]: item for item in found["types"]}
    comma = tiny_tokenizer().convert_tokens_to_ids(",")
    assert by_token[","]["in_text"] == counts[comma]
    assert sum(group["share_in_text"] for group in found["groups"]) == pytest.approx(1)
    assert 0.5 < sum(item["share_in_text"] for item in found["types"]) < 1  # rare types are not listed
    assert sum(item["share_of_nuggets"] for item in found["types"]) == pytest.approx(1)
    assert sum(group["share_of_nuggets"] for group in found["groups"]) == pytest.approx(1)
    assert by_token[","]["preference"] > 1  # chunking prefers delimiters


def test_a_model_that_keeps_everything_prefers_nothing(texts, tmp_path):
    found = evaluate(texts, tmp_path, selector="all_tokens")
    assert {round(item["preference"], 9) for item in found["types"]} == {1.0}
    assert found["nuggets"] == found["tokens"]


def test_a_model_that_keeps_sentence_ends_favours_the_period(texts, tmp_path):
    found = evaluate(texts, tmp_path, selector="sentence_boundary")
    assert [item["token"] for item in found["types"] if item["nuggets"]] == ["."]
    assert favoured(found, 1)[0]["token"] == "."
    assert favoured(found, 3, avoided=True)[0]["preference"] == 0
    text = to_markdown(found)
    assert "| punctuation |" in text
    assert "| `.` |" in text
    written = save_figure(draw_preferences(found), tmp_path / "figure")
    assert [path.suffix for path in written] == [".png", ".svg"]


@pytest.mark.parametrize(
    ("token", "language", "group"),
    [
        ("<s>", "en", "beginning"),
        ("</s>", "en", "end"),
        ("\u2581,", "en", "punctuation"),
        ("\u0120and", "en", "conjunctions"),
        ("\u2581Et", "fr", "conjunctions"),
        ("\u2581et", "en", "rest"),
        ("of", "en", "prepositions"),
        ("\u2581", "en", "rest"),
        ("\u2581and", "fi", "rest"),
    ],
)
def test_pieces_are_grouped_by_language(token, language, group):
    assert group_of(token, language, "<s>", "</s>") == group


def test_one_pooled_vector_has_no_preferences(texts, tmp_path):
    with pytest.raises(ConfigError, match="chooses no tokens"):
        evaluate(texts, tmp_path, selector="mean")
