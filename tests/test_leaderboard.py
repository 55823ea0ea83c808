"""The leaderboard lists every results file, best first."""

from __future__ import annotations

import json
import re

import pytest

from tools import leaderboard


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a results file to a folder that stands for docs."""
    monkeypatch.setattr(leaderboard, "DOCS", tmp_path)
    monkeypatch.setattr(leaderboard, "_shipped", lambda: {"now": "search"})

    def write(name, content):
        path = tmp_path / "results" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")

    return write


def system(name, value, weights="w", **more):
    measures = {"nDCG@10": {"mean": value, "low": value - 1, "high": value + 1}}
    found = {"system": name, "vectors": 2.0, "weights": weights, "ratio": 0.1, "query_ratio": 0.25}
    return {**found, "measures": measures, **more}


def similarity(*rows, task="retrieval/time"):
    settings = {"task": task, "kind": "retrieval", "similarity": "maxsim"}
    return {"settings": settings, "queries": 5, "documents": 1234, "results": rows}


def ranked(text):
    """The first cell after each rank, in order."""
    return re.findall(r"^\| \d+ \| (.+?) \|", text, re.MULTILINE)


def test_systems_of_all_files_of_a_task_are_ranked_together(write):
    write(
        "search/first/similarity.json", similarity(system("m:all", 50.0), system("bm25", 70.0, vectors=None))
    )
    write("search/second/similarity.json", similarity(system("mine", 60.0, weights="other")))
    text = leaderboard.search_boards()
    assert text.startswith("### TIME: 5 queries, 1,234 documents, search in all documents\n")
    assert ranked(text) == ["bm25", "mine", "m:all"]
    assert "| 60.0 (59.0 to 61.0) | [search/second](results/search/second/similarity.md) |" in text


def test_a_model_that_ships_is_bold_and_its_name_with_other_weights_is_not(write):
    write("a/similarity.json", similarity(system("search", 50.0, "old"), system("candidate", 60.0, "now")))
    assert ranked(leaderboard.search_boards()) == ["**search**", "search, earlier weights"]


def test_what_two_files_measured_is_one_line_with_the_one_that_says_more(write):
    write("a/similarity.json", similarity(system("m:chunk_means@0.1", 50.0), system("x", 40.0, "x")))
    write(
        "b/similarity.json", similarity(system("m:chunk_means@0.1/0.25", 50.0, bytes=1536.0, dtype="float16"))
    )
    text = leaderboard.search_boards()
    assert ranked(text) == ["m:chunk_means@0.1/0.25", "x"]
    assert "| 2.0 | 1.5 | 50.0" in text


def test_a_task_with_one_system_is_no_comparison(write):
    write("a/similarity.json", similarity(system("x", 40.0), task="retrieval/med"))
    assert leaderboard.search_boards() == ""


def test_reconstruction_is_ordered_by_its_bleu_at_a_tenth_of_the_tokens(write):
    def found(weights, values):
        rows = [{"ratio": r, "bleu": b, "max_tokens": 128, "documents": 9} for r, b in values.items()]
        data = [{"source": "wikipedia/dev.jsonl.gz"}]
        return {"model": {"weights": weights}, "settings": {"beams": 5}, "data": data, "results": rows}

    write("low/reconstruction.json", found("a", {0.1: 50.0, 0.25: 99.0}))
    write("high/reconstruction.json", found("b", {0.1: 60.0, 0.5: 99.5}))
    text = leaderboard.reconstruction_boards()
    assert text.startswith("### wikipedia, dev: 9 documents of up to 128 tokens, 5 beams\n")
    assert ranked(text) == ["high", "low"]
    assert "| # | model | r = 0.1 | r = 0.25 | r = 0.5 | results |" in text


def test_a_language_model_counts_with_its_longest_history_and_the_lowest_perplexity_is_first(write):
    def found(*values):
        rows = [
            {
                "history": h,
                "articles": 3,
                "words": 4000,
                "stride": 32,
                "word_perplexity": {"value": value, "low": value, "high": value},
            }
            for h, value in enumerate(values)
        ]
        return {"data": [{"source": "wikitext/test.txt.gz"}], "results": rows}

    write("lm/plain/test/perplexity.json", found(200.0))
    write("lm/nuggets/test/perplexity.json", found(250.0, 180.0))
    text = leaderboard.perplexity_boards()
    assert ranked(text) == ["lm/nuggets", "lm/plain"]
    assert "| 1 | 180.0 (180.0 to 180.0) |" in text
