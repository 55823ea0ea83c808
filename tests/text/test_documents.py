"""Reading texts, and naming what cannot be read."""

from __future__ import annotations

import gzip
import io
import json
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from textnuggets.errors import InputError
from textnuggets.text.documents import read_documents


def test_a_text_file_has_one_text_a_line_named_by_its_number(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\r\n\ntwo é".encode())
    assert list(read_documents(str(path))) == [("1", "one"), ("2", ""), ("3", "two é")]


def test_json_lines_have_a_text_and_perhaps_an_id(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one", "id": "x"}\n{"text": "two\\nlines", "id": 7}\n{"text": ""}\n')
    assert list(read_documents(str(path))) == [("x", "one"), ("7", "two\nlines"), ("3", "")]


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz"])
def test_both_may_be_gzipped(tmp_path, name):
    line = "one" if name == "a.txt.gz" else '{"text": "one", "id": 1}'
    with gzip.open(tmp_path / name, "wt") as out:
        out.write(line + "\n")
    assert list(read_documents(str(tmp_path / name))) == [("1", "one")]


def test_a_damaged_gzip_file_is_named(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"one\n" * 100_000)[:-20])
    with pytest.raises(InputError, match=r"a\.txt\.gz, line \d+:"):
        list(read_documents(str(path)))


def test_parquet_columns_are_read(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["one", "two"], "id": [10, 11], "other": [0, 0]}), path)
    assert list(read_documents(str(path))) == [("10", "one"), ("11", "two")]
    pq.write_table(pa.table({"text": ["one", None]}), path)
    bad = []
    assert list(read_documents(str(path), bad.append)) == [("1", "one")]
    assert "row 2: 'text' is NoneType" in str(bad[0])


@pytest.mark.parametrize("lines", [b"one\ntwo\n", b'{"text": "one"}\n{"text": "two"}\n'])
def test_standard_input_may_be_plain_or_json(monkeypatch, lines):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(lines)))
    assert list(read_documents("-")) == [("1", "one"), ("2", "two")]


@pytest.mark.parametrize("lines", [b'\xef\xbb\xbf{"text": "one"}\n', b'\n\n{"text": "one", "id": 1}\n\n'])
def test_json_on_standard_input_may_begin_with_a_mark_or_blank_lines(monkeypatch, lines):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(lines)))
    assert list(read_documents("-")) == [("1", "one")]


BAD = {
    b"not json": "not JSON",
    b'{"txt": "x"}': "the field 'text' is missing",
    b'{"text": 3}': "the field 'text' is int",
    b'["text"]': "not list",
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
        list(read_documents(str(path)))
    bad = []
    assert list(read_documents(str(path), bad.append)) == [("1", "good"), ("3", "good")]
    assert len(bad) == 1


def test_missing_and_unknown_files_are_errors_at_once(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_documents(str(tmp_path / "a.txt"))
    (tmp_path / "a.docx").touch()
    with pytest.raises(InputError, match=r"use \.txt, \.jsonl or \.parquet"):
        read_documents(str(tmp_path / "a.docx"))
    (tmp_path / "a.parquet").write_text("no")
    with pytest.raises(InputError, match="not a Parquet file"):
        list(read_documents(str(tmp_path / "a.parquet")))
    pq.write_table(pa.table({"body": ["one"]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="needs one column 'text', has only body"):
        list(read_documents(str(tmp_path / "a.parquet")))
