"""Tasks, read from folders and built from texts."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from tests.evaluate.setting import mean_reciprocal_rank
from textnuggets.errors import InputError
from textnuggets.evaluate.similarity import measure
from textnuggets.evaluate.systems import make_system
from textnuggets.evaluate.task_builders import build_paraphrase, build_reranking, write_task
from textnuggets.evaluate.tasks import read_task
from textnuggets.model.maxsim import one_way


def test_grades_say_what_they_mean_and_leave_out_the_rest(retrieval):
    assert read_task(retrieval, grades={1: 4, 4: 1}).grades[0] == {0: 4, 1: 1}
    assert read_task(retrieval).grades[0] == {0: 1, 1: 4}


def test_what_is_judged_but_missing_counts_as_not_found(retrieval, tmp_path):
    shutil.copytree(retrieval, tmp_path / "task")
    with (tmp_path / "task" / "qrels.tsv").open("a") as rows:
        rows.write("q0\tgone\t1\nq1\tgone\t1\n")
    task = read_task(tmp_path / "task")
    assert task.grades[0] == {0: 1, 1: 4, -1: 1}
    found = measure(task.candidates, task.grades, ["R@100"])["R@100"]
    assert found[0] == pytest.approx(2 / 3)
    assert found[2] == 1


def test_a_task_without_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        read_task(tmp_path / "none")


def test_a_task_without_documents_is_refused(retrieval, tmp_path):
    shutil.copytree(retrieval, tmp_path / "task")
    (tmp_path / "task" / "corpus.jsonl").write_text("")
    with pytest.raises(InputError, match="has no documents"):
        read_task(tmp_path / "task")


@pytest.mark.parametrize(
    ("answer", "documents", "message"),
    [
        (None, None, r"neither task\.jsonl"),
        (0, None, r"docs\.txt is missing"),
        (3, "L0\ta\nR0\tb\n", r"task\.jsonl, line 1: source, candidates and answer"),
        (-1, "L0\ta\nR0\tb\n", r"task\.jsonl, line 1: source, candidates and answer"),
        (0, "L0\ta\nR0\n", r"docs\.txt, line 2: expected 2 columns"),
    ],
)
def test_a_broken_task_is_named_with_its_line(tmp_path, answer, documents, message):
    if answer is not None:
        task = {"source": "L0", "candidates": ["R0"], "answer": answer}
        (tmp_path / "task.jsonl").write_text(json.dumps(task) + "\n")
    if documents is not None:
        (tmp_path / "docs.txt").write_text(documents)
    with pytest.raises(InputError, match=message):
        read_task(tmp_path)


def test_reranking_asks_for_a_section_of_the_same_article(tmp_path):
    words = [f"alpha{i} beta{i} gamma{i}" for i in range(30)]
    articles = [
        {
            "sections": [{"head": "", "paras": [f"{word} " * 12]}]
            + [{"head": "h", "paras": [f"{word} {j} " * 20]} for j in (1, 2)]
        }
        for word in words
    ]
    (tmp_path / "articles.jsonl").write_text("".join(json.dumps(article) + "\n" for article in articles))
    questions = build_reranking([str(tmp_path / "articles.jsonl")], seed=1)
    assert len(questions) == 30
    for word, question in zip(words, questions, strict=True):
        assert word in question.query
        assert word in question.answer
        assert question.answer != question.query
        assert len(question.negatives) == 19
        assert not any(word in negative for negative in question.negatives)
    write_task(tmp_path / "task", questions, {"seed": 0})
    task = read_task(tmp_path / "task")
    assert mean_reciprocal_rank(task, make_system("bm25", one_way).read(task.queries, task.documents)) > 90
    places = [
        json.loads(line)["answer"] for line in (tmp_path / "task" / "task.jsonl").read_text().splitlines()
    ]
    assert len(set(places)) > 5  # the answer stands anywhere


def test_paraphrases_lack_other_sentences_on_each_side(tmp_path):
    lines = [f"one{i} two{i} three{i}\teins{i} two{i} drei{i}" for i in range(400)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    questions = build_paraphrase([str(tmp_path / "pairs.tsv")], max_words=30)
    assert len(questions) == 40
    left = [{word for word in q.query.split() if word.startswith("two")} for q in questions]
    right = [{word for word in q.answer.split() if word.startswith("two")} for q in questions]
    shares = [len(a) / 10 for a in left + right]
    assert 0.7 < np.mean(shares) < 0.9
    assert sum(a != b for a, b in zip(left, right, strict=True)) > 20
    assert all(q.answer not in q.negatives and len(q.negatives) == 19 for q in questions)


def test_too_few_texts_make_no_task(tmp_path):
    (tmp_path / "few.tsv").write_text("a\tb\n")
    with pytest.raises(InputError, match="20 are needed"):
        build_paraphrase([str(tmp_path / "few.tsv")])
    (tmp_path / "few.tsv").write_text("a\n")
    with pytest.raises(InputError, match="line 1: expected two columns"):
        build_paraphrase([str(tmp_path / "few.tsv")])
    (tmp_path / "few.jsonl").write_text('{"text": "no sections"}\n')
    with pytest.raises(InputError, match="expected an article with 'sections'"):
        build_reranking([str(tmp_path / "few.jsonl")])
