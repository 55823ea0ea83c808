"""Collections in BEIR's layout are read as they are."""

from __future__ import annotations

import gzip
import json
import shutil

import pytest

from tests.tiny import CORPUS
from textnuggets.errors import InputError
from textnuggets.evaluate.tasks import read_task


@pytest.fixture
def beir(tmp_path):
    """A collection as BEIR publishes it; the queries of all splits are in one file."""
    folder = tmp_path / "tiny"
    (folder / "qrels").mkdir(parents=True)
    corpus = [
        {"_id": f"d{i}", "title": f"Title {i}", "text": text, "metadata": {"year": i}}
        for i, text in enumerate(CORPUS)
    ]
    queries = [{"_id": f"q{i}", "text": text.upper(), "metadata": {}} for i, text in enumerate(CORPUS)]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split, numbers in (("test", (0, 1)), ("dev", (2,)), ("train", (3, 4))):
        rows = [f"q{i}\td{i}\t2\n" for i in numbers] + [f"q{numbers[0]}\td4\t0\n"]
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    return folder


def test_the_test_split_is_read_unless_another_is_chosen(beir):
    task = read_task(beir)
    assert (task.name, task.kind, task.reading["split"]) == ("tiny/test", "retrieval", "test")
    assert task.documents == [f"Title {i} {text}" for i, text in enumerate(CORPUS)]
    assert task.queries == [text.upper() for text in CORPUS[:2]]
    assert task.grades == [{0: 2}, {1: 2}]
    train = read_task(beir, split="train")
    assert (train.name, train.grades) == ("tiny/train", [{3: 2}, {4: 2}])
    assert train.sha256 != task.sha256


def test_gzipped_files_give_the_same_task(beir):
    plain = read_task(beir, split="dev")
    for path in [*beir.glob("*.jsonl"), *beir.glob("qrels/*.tsv")]:
        with gzip.open(f"{path}.gz", "wb") as packed:
            packed.write(path.read_bytes())
        path.unlink()
    packed = read_task(beir, split="dev")
    assert (packed.queries, packed.documents, packed.grades) == (plain.queries, plain.documents, plain.grades)


def test_a_query_that_is_a_document_does_not_find_itself(beir):
    # As in BEIR, where the queries of some collections are documents with the same id.
    rows = [json.loads(line) for line in (beir / "queries.jsonl").read_text().splitlines()]
    rows[0]["_id"], rows[1]["_id"] = "d0", "q1"
    (beir / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nd0\td3\t1\nq1\td1\t1\n")
    task = read_task(beir)
    assert task.candidates == [[1, 2, 3, 4], [0, 1, 2, 3, 4]]


def test_ids_may_be_integers(beir):
    for name in ("corpus", "queries"):
        path = beir / f"{name}.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        lines = [json.dumps({**row, "_id": int(row["_id"][1:])}) + "\n" for row in rows]
        path.write_text("".join(lines))
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n0\t3\t1\n")
    assert read_task(beir).grades == [{3: 1}]


def test_a_single_split_needs_no_choice(beir):
    for split in ("test", "train"):
        (beir / "qrels" / f"{split}.tsv").unlink()
    assert read_task(beir).name == "tiny/dev"


@pytest.mark.parametrize(
    ("missing", "split", "message"),
    [
        (["corpus.jsonl"], None, r"tiny: corpus\.jsonl is missing"),
        (["queries.jsonl"], None, r"tiny: queries\.jsonl is missing"),
        (["qrels"], None, r"tiny: qrels\.tsv and qrels/test\.tsv are missing"),
        (["qrels"], "dev", r"tiny: qrels/dev\.tsv is missing"),
        (["qrels/test.tsv"], None, r"tiny: there is no qrels/test\.tsv; choose the split dev or train"),
        ([], "all", r"tiny: there is no qrels/all\.tsv; choose the split dev or test or train"),
    ],
)
def test_a_missing_part_is_named(beir, missing, split, message):
    for name in missing:
        path = beir / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(InputError, match=message):
        read_task(beir, split=split)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"_id": null, "text": "a"}', r"line 6: the field '_id' must be a string or an integer, got None"),
        ('{"text": "a"}', r"line 6: the field 'id' must be a string or an integer, got None"),
        ('{"_id": "d5"}', r"line 6: the field 'text' must be a string, got None"),
    ],
)
def test_a_broken_record_is_named_with_its_line(beir, line, message):
    with (beir / "corpus.jsonl").open("a") as corpus:
        corpus.write(line + "\n")
    with pytest.raises(InputError, match=message):
        read_task(beir)


def test_a_reranking_task_has_no_splits(first_is_right):
    with pytest.raises(InputError, match="has no splits; leave out the split 'dev'"):
        read_task(first_is_right, split="dev")


def test_the_command_reads_a_split_by_name(beir, run, tmp_path):
    done = run("evaluate", "similarity", "bm25", beir, "--split", "train", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "tiny/train: 2 queries, 5 documents" in done.stdout
    failed = run("evaluate", "similarity", "bm25", beir, "--split", "all", "--out", tmp_path / "out")
    assert failed.returncode == 2
    assert "there is no qrels/all.tsv" in failed.stderr
