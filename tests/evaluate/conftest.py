"""Fixtures of the tests of evaluation: tasks and tiny models."""

from __future__ import annotations

import gzip
import json

import pytest

from tests.evaluate.setting import CANDIDATES
from tests.tiny import CORPUS, tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def first_is_right(tmp_path_factory):
    """Task whose file always lists the answer first, as the files of the paper's authors do."""
    folder = tmp_path_factory.mktemp("task")
    with gzip.open(folder / "docs.txt.gz", "wt") as docs:
        docs.writelines(f"L{i}\tquery {i}\nR{i}\tdocument {i}\n" for i in range(300))
    lines = [
        {"source": f"L{i}", "candidates": [f"R{(i + j) % 300}" for j in range(CANDIDATES)], "answer": 0}
        for i in range(300)
    ]
    (folder / "task.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    model = tiny_model("bert")
    model.save_pretrained(folder / "nuggets")
    model.backbone.save_pretrained(folder / "bare")
    tiny_tokenizer().save_pretrained(folder / "bare")
    return folder


@pytest.fixture(scope="module")
def retrieval(tmp_path_factory):
    folder = tmp_path_factory.mktemp("retrieval")
    corpus = [{"id": f"d{i}", "title": "", "text": text} for i, text in enumerate(CORPUS)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in corpus))
    queries = [{"id": f"q{i}", "text": text} for i, text in enumerate(CORPUS)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in queries))
    rows = [f"q{i}\td{i}\t1\nq{i}\td{(i + 1) % 5}\t4\nq{i}\td{(i + 2) % 5}\t-1\n" for i in range(5)]
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    return folder
