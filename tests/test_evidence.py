"""The evidence benchmark on a few passages with a tiny model."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench.evidence import Question, Setting, make_setting, measure_all
from tests.tiny import CORPUS, tiny_model
from textnuggets.errors import InputError
from textnuggets.search.bm25 import words_of

PASSAGES = [" ".join(CORPUS[(number + i) % 5] for i in range(2)) for number in range(5)]


def write_questions(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def embed(texts):
    """Return one vector per text from the words of the corpus."""
    vocabulary = sorted({word for words in words_of(CORPUS) for word in words})
    vectors = np.array([[words.count(word) for word in vocabulary] for words in words_of(texts)], float)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def test_passages_are_joined_to_documents_that_hold_the_answers(tmp_path):
    path = write_questions(
        tmp_path / "questions.jsonl",
        {"query": "where did the cat sit?", "positive": PASSAGES[0], "answers": ["the  Mat"]},
        {"query": "who?", "positive": PASSAGES[1], "answers": ["not in it"]},
        {"query": "part of a word", "positive": PASSAGES[1], "answers": ["ridge"]},
    )
    setting = make_setting(path, PASSAGES, joined=2)
    assert len(setting.documents) == 3
    (question,) = setting.questions
    assert PASSAGES[0] in setting.documents[question.document]


def test_questions_without_answers_are_refused(tmp_path):
    path = write_questions(tmp_path / "questions.jsonl", {"query": "who?", "positive": PASSAGES[0]})
    with pytest.raises(InputError, match="has no question with `answers`"):
        make_setting(path, PASSAGES, joined=2)


def test_only_the_answer_in_the_right_document_counts():
    documents = [f"{CORPUS[0]} {CORPUS[1]}", f"{CORPUS[2]} {CORPUS[4]}"]
    questions = [
        Question(CORPUS[1], ["the river"], document=0),
        Question(CORPUS[1], ["the river"], document=1),
        Question(CORPUS[4], ["drawer"], document=1),  # in the document, but not in the sentence asked for
        Question(CORPUS[4], ["the coins"], document=1),
    ]
    rows = measure_all(tiny_model("bert"), embed, Setting(documents, questions))
    for name in ("nuggets", "one vector", "bm25"):
        assert rows[name]["right_document"] == 75, name
    for name in ("one vector", "bm25"):
        assert rows[name]["answered"] == 50
        assert rows[f"{name}, whole passage"]["answered"] == 75
        assert rows[name]["characters"] < rows[f"{name}, whole passage"]["characters"]
    assert rows["nuggets"]["answered"] >= 50
    ours, equal = rows["nuggets"]["bytes"], rows["one vector, equal bytes"]["bytes"]
    assert 0.5 < equal / ours < 2
