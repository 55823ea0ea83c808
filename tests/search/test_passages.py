"""Passages of a hit: whole sentences, the best first, with their scores."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.conftest import IDS
from tests.tiny import CORPUS
from textnuggets import NuggetIndex
from textnuggets.errors import InputError
from textnuggets.search.passages import ENDLESS, LONGEST, find_passages, whole_sentences

# Texts of these tests have characters that the tiny tokenizer does not know.
pytestmark = pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")
BORING = "This sentence has nothing to do with it at all, and it is here for its length. " * 5
LETTER = f"{BORING}The piers were old. They fell in the flood. {BORING}The end of the bridge came at night."


def segments_of(text, *parts):
    """Return the spans of parts of a text, in order."""
    return np.array([(text.index(part), text.index(part) + len(part)) for part in parts])


def texts_of(text, segments, cosines):
    return [passage.text for passage in find_passages(text, segments, np.array(cosines))]


def test_passages_are_whole_sentences_the_best_first():
    segments = segments_of(LETTER, "piers were", ", and it is", "fell in the flood", "bridge came at")
    segments = segments[segments[:, 0].argsort()]
    passages = find_passages(LETTER, segments, np.array([[0.1, 0.8, 0.2, 0.3], [0.0, 0.1, 0.6, 0.4]]))
    assert [passage.text for passage in passages][:2] == [
        "The piers were old. They fell in the flood.",
        "The end of the bridge came at night.",
    ]
    assert passages[2].text == BORING.split(". ")[0] + "."
    # The mean over the two nuggets of the query of the highest cosine within the passage.
    assert [passage.score for passage in passages] == pytest.approx([0.7, 0.35, 0.05])
    for passage in passages:
        assert LETTER[slice(*passage.span)] == passage.text


def test_a_sentence_without_a_best_match_is_left_out():
    text = "It rained. The bridge fell. It was cold."
    segments = segments_of(text, "It rained.", "The bridge fell.", "It was cold.")
    assert texts_of(text, segments, [[0.1, 0.9, 0.2]])[0] == "The bridge fell."


def test_a_segment_over_two_sentences_shows_both_unless_little_of_one_is_in_it():
    text = "The old stone bridge was closed. It fell. Nobody was hurt when that happened."
    both = segments_of(text, "The old stone bridge", "was closed. It fell.", "Nobody was hurt")
    assert texts_of(text, both, [[0.1, 0.9, 0.2]])[0] == "The old stone bridge was closed. It fell."
    little = segments_of(text, "The old stone", "bridge was closed. It", "Nobody was hurt")
    assert texts_of(text, little, [[0.1, 0.9, 0.2]])[0] == "The old stone bridge was closed."


def test_a_passage_is_no_longer_than_its_limit_unless_one_sentence_is():
    text = "".join(f"Sentence number {number} of this text is here. " for number in range(40))
    segments = np.array(whole_sentences(text))
    cosines = np.eye(20).repeat(2, axis=1)
    for passage in find_passages(text, segments, cosines):
        assert LONGEST / 2 < len(passage.text) <= LONGEST
    long = "A sentence of many words, " * 20 + "ends."
    assert texts_of(f"Short. {long} Short.", segments_of(long, "many"), [[0.5]]) == [long]


@given(st.text("ab ,.;!?)\n\u3002\u3001\u4e00\"'", max_size=80), st.integers(1, 30))
def test_no_passage_has_half_a_word_or_starts_with_a_comma(text, repeated):
    text *= repeated
    for start, end in whole_sentences(text):
        assert text[start] not in ",.;!?) \n\u3002\u3001"
        assert not text[end - 1].isspace()
        assert not (start and (text[start - 1] + text[start]).isalpha() and text[start - 1].isascii())
    cuts = np.arange(0, len(text) + 7, 7).clip(max=len(text))
    segments = np.stack([cuts[:-1], cuts[1:]], axis=1)
    if len(segments):
        passages = find_passages(text, segments, np.random.default_rng(0).random((2, len(segments))))
        spans = sorted(passage.span for passage in passages)
        assert passages
        assert all(one[1] <= two[0] for one, two in pairwise(spans))


def test_a_text_without_punctuation_is_cut_between_lines_or_words():
    words = "word another " * 200
    assert all(
        len(words[a:b]) <= LONGEST and set(words[a:b].split()) == {"word", "another"}
        for a, b in whole_sentences(words)
    )
    table = "\n".join(f"row {number} , with some cells" for number in range(100))
    parts = [table[a:b] for a, b in whole_sentences(table)]
    assert len(parts) > 1
    assert all(part.startswith("row") and part.endswith("cells") for part in parts)
    unbroken = "x" * 3 * ENDLESS
    assert whole_sentences(unbroken) == [(0, len(unbroken))]


def test_a_long_document_shows_the_sentence_that_was_asked_for(index):
    text = " ".join([*CORPUS[:3] * 4, CORPUS[4], *CORPUS[:3] * 4])
    index.add(["long", *IDS], [text, *CORPUS])
    hit = next(hit for hit in index.search(CORPUS[4], k=6) if hit.id == "long")
    assert CORPUS[4] in hit.passages[0].text
    assert hit.passages[0].score <= hit.score + 2e-3
    assert [passage.score for passage in hit.passages] == sorted(
        (p.score for p in hit.passages), reverse=True
    )


def test_passages_of_texts_that_are_not_stored_are_spans(model, tmp_path):
    with NuggetIndex.create(tmp_path / "index", model, ratio=0.2, store_text=False) as index:
        index.add(["long"], [" ".join(CORPUS * 4)])
        (hit,) = index.search(CORPUS[1], k=1)
    assert hit.passages
    for passage in hit.passages:
        assert passage.text is None
        assert 0 < passage.span[1] - passage.span[0] <= LONGEST


def test_text_that_is_not_asked_for_is_neither_returned_nor_decoded(copier, tmp_path, monkeypatch):
    with NuggetIndex.create(tmp_path / "index", copier, store_text=False) as index:
        index.add(IDS, CORPUS)
        monkeypatch.setattr(copier, "reconstruct", lambda *_, **__: pytest.fail("the text was decoded"))
        assert index.search(CORPUS[0], k=1, full=False)[0].text is None


def test_documents_below_the_least_score_are_left_out(index):
    index.add(IDS, CORPUS)
    hits = index.search(CORPUS[1], k=5)
    middle = (hits[1].score + hits[2].score) / 2
    assert index.search(CORPUS[1], k=5, min_score=middle) == hits[:2]
    assert index.search(CORPUS[1], k=5, min_score=-1) == hits


@pytest.mark.parametrize("least", [1.5, -2, float("nan"), True, "0.5"])
def test_a_least_score_that_no_score_can_have_is_refused(index, least):
    with pytest.raises(InputError, match="min_score must be a number from -1 to 1"):
        index.search("cat", min_score=least)


def test_the_command_prints_passages_and_whole_texts_on_request(run, model, tmp_path):
    text = " ".join([*CORPUS[:3] * 3, CORPUS[4], *CORPUS[:3] * 3])
    with NuggetIndex.create(tmp_path / "index", model, ratio=0.2) as index:
        index.add(["long", "short"], [text, CORPUS[3]], [{"year": 1871}, None])
        hits = index.search(CORPUS[4], k=2)
    long = next(hit for hit in hits if hit.id == "long")
    shown = run("search", tmp_path / "index", CORPUS[4], "--filter", "year=1871").stdout.splitlines()
    assert shown == [
        f'1. long  {long.score:.4f}  {{"year": 1871}}',
        *(f"   {passage.score:.4f}  {passage.text}" for passage in long.passages),
    ]
    full = run("search", tmp_path / "index", CORPUS[4], "--filter", "year=1871", "--full").stdout
    assert full.splitlines()[1].replace("[", "").replace("]", "") == text
    assert f"[{long.passages[0].text}]" in full
    for options, has_text in (([], False), (["--full"], True)):
        first = json.loads(
            run("search", tmp_path / "index", CORPUS[4], "--json", *options).stdout.split("\n")[0]
        )
        assert first["passages"][0]["text"] == hits[0].passages[0].text
        assert ("text" in first) is has_text
    none = run("search", tmp_path / "index", CORPUS[4], "--min-score", "1")
    assert none.stdout == ""
    assert "nothing found" in none.stderr
    for wrong in ("2", "nan"):
        refused = run("search", tmp_path / "index", "cat", "--min-score", wrong)
        assert refused.returncode == 2
        assert "must be at least -1 and at most 1" in refused.stderr
