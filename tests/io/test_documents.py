"""Reading documents and reporting bad lines."""

from __future__ import annotations

import gzip
import io
import json
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from textnuggets.errors import InputError
from textnuggets.io.documents import read_collection, read_documents


def read(*arguments):
    return [(document.id, document.text) for document in read_documents(*arguments)]


def test_a_text_file_has_one_text_per_line_with_the_line_number_as_id(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\r\n\ntwo é".encode())
    assert read(str(path)) == [("1", "one"), ("2", ""), ("3", "two é")]


def test_json_lines_have_a_text_and_an_optional_id(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one", "id": "x"}\n{"text": "two\\nlines", "id": 7}\n{"text": ""}\n')
    assert read(str(path)) == [("x", "one"), ("7", "two\nlines"), ("3", "")]


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz"])
def test_text_and_json_lines_may_be_gzipped(tmp_path, name):
    line = "one" if name == "a.txt.gz" else '{"text": "one", "id": 1}'
    with gzip.open(tmp_path / name, "wt") as out:
        out.write(line + "\n")
    assert read(str(tmp_path / name)) == [("1", "one")]


def test_a_damaged_gzip_file_is_named(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"one\n" * 100_000)[:-20])
    with pytest.raises(InputError, match=r"a\.txt\.gz, line \d+:"):
        read(str(path))


def test_parquet_columns_are_read(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["one", "two"], "id": [10, 11], "other": [0, 0]}), path)
    assert read(str(path)) == [("10", "one"), ("11", "two")]
    pq.write_table(pa.table({"text": ["one", None]}), path)
    bad = []
    assert read(str(path), bad.append) == [("1", "one")]
    assert "row 2: 'text' is NoneType" in str(bad[0])


@pytest.mark.parametrize("lines", [b"one\ntwo\n", b'{"text": "one"}\n{"text": "two"}\n'])
def test_standard_input_may_be_plain_or_json(monkeypatch, lines):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(lines)))
    assert read("-") == [("1", "one"), ("2", "two")]


@pytest.mark.parametrize("lines", [b'\xef\xbb\xbf{"text": "one"}\n', b'\n\n{"text": "one", "id": 1}\n\n'])
def test_json_on_standard_input_may_begin_with_a_mark_or_blank_lines(monkeypatch, lines):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(lines)))
    assert read("-") == [("1", "one")]


BAD = {
    b"not json": "not JSON",
    b'{"txt": "x"}': "the field 'text' is missing",
    b'{"text": 3}': "the field 'text' is int",
    b'["text"]': "got list",
    b'{"text": "a", "id": []}': "the field 'id' is list",
    b'{"text": "\\ud800"}': "surrogate",
    b'{"text": "a", "id": "\\ud800"}': "surrogate",
    b'{"text": ' + b"9" * 5000 + b"}": "not JSON",
    b"\xff\xfe": "not UTF-8",
    b"[" * 100_000: "not JSON",
}


@pytest.mark.parametrize("line", BAD)
def test_a_bad_line_is_named_and_can_be_skipped(tmp_path, line):
    path = tmp_path / "a.jsonl"
    good = json.dumps({"text": "good"}).encode()
    path.write_bytes(b"\n".join([good, line, good]))
    with pytest.raises(InputError, match=f"a.jsonl, line 2: .*{BAD[line]}"):
        read(str(path))
    bad = []
    assert read(str(path), bad.append) == [("1", "good"), ("3", "good")]
    assert len(bad) == 1


def test_missing_and_unknown_files_are_errors_at_once(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_documents(str(tmp_path / "a.txt"))
    (tmp_path / "a.docx").touch()
    with pytest.raises(InputError, match=r"use \.txt, \.jsonl or \.parquet"):
        read_documents(str(tmp_path / "a.docx"))
    (tmp_path / "a.parquet").write_text("no")
    with pytest.raises(InputError, match="not a Parquet file"):
        read(str(tmp_path / "a.parquet"))
    pq.write_table(pa.table({"body": ["one"]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"needs one column 'text' .*; found body"):
        read(str(tmp_path / "a.parquet"))


def test_a_collection_reads_nested_folders_and_names_documents_by_id_or_by_file_and_line(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.txt").write_text("two\nlines")
    with gzip.open(tmp_path / "b.txt.gz", "wt") as packed:
        packed.write("packed")
    (tmp_path / "c.md").write_text("# Title")
    lines = [{"id": 17, "text": "own", "year": 1}, {"text": "no id"}, {"id": "2", "text": "own, too"}]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    pq.write_table(pa.table({"text": ["x"], "tag": ["t"]}), tmp_path / "e.parquet")
    found = list(read_collection(str(tmp_path)))
    assert [(document.id, document.text) for document in found] == [
        ("b.txt.gz", "packed"), ("c.md", "# Title"), ("17", "own"), ("d.jsonl:2", "no id"), ("2", "own, too"),
        ("e.parquet:1", "x"), ("sub/a.txt", "two\nlines"),
    ]  # fmt: skip
    assert [document.metadata for document in found[2:4]] == [{"year": 1}, None]
    assert found[5].metadata == {"tag": "t"}
    # A file given by itself yields the same ids.
    assert [d.id for d in read_collection(str(tmp_path / "d.jsonl"))] == ["17", "d.jsonl:2", "2"]
    assert [d.id for d in read_collection(str(tmp_path / "c.md"))] == ["c.md"]
    assert [d.id for d in read_collection(str(tmp_path / "sub" / "a.txt"))] == ["a.txt:1", "a.txt:2"]


def test_an_empty_collection_or_a_broken_file_of_one_is_named(tmp_path):
    with pytest.raises(InputError, match="the folder contains no"):
        read_collection(str(tmp_path))
    (tmp_path / "bad.txt").write_bytes(b"\xff")
    (tmp_path / "good.txt").write_text("good")
    with pytest.raises(InputError, match=r"bad\.txt: not UTF-8"):
        list(read_collection(str(tmp_path)))
    bad = []
    assert [d.id for d in read_collection(str(tmp_path), bad.append)] == ["good.txt"]
    assert len(bad) == 1
