"""Parquet files: checksums, and rows that Python cannot represent."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.lm.setting import make_lm
from tests.tiny import CORPUS
from tests.train.setting import make_setting
from textnuggets.errors import InputError
from textnuggets.io.corpora import read_passages
from textnuggets.io.documents import read_collection, read_documents
from textnuggets.io.parquet import open_parquet, read_batches, read_table, to_rows, write_parquet

INVALID = {"bytes that are not UTF-8": b"caf\xe9", "a lone surrogate": b"\xed\xa0\x80"}


def as_text(*values):
    """Return a column of strings from bytes, without any check."""
    return pa.array(values, pa.binary()).view(pa.string())


@pytest.fixture(params=INVALID.values(), ids=INVALID)
def corpus(request, tmp_path):
    """A file whose second row is not valid Unicode."""
    path = tmp_path / "corpus.parquet"
    good = CORPUS[0].encode()
    pq.write_table(pa.table({"text": as_text(good, request.param, good)}), path)
    return path


@pytest.mark.parametrize("reader", [read_documents, read_collection])
def test_a_row_that_is_not_unicode_is_named_and_can_be_skipped(corpus, reader):
    with pytest.raises(InputError, match=r"corpus\.parquet, row 2: the column 'text' is not UTF-8 \(byte"):
        list(reader(str(corpus)))
    bad = []
    assert [document.text for document in reader(str(corpus), bad.append)] == [CORPUS[0]] * 2
    assert [str(error).split(": ")[0] for error in bad] == [f"{corpus}, row 2"]


@pytest.mark.parametrize("column", ["id", "tags"])
def test_so_is_one_whose_id_or_metadata_is_not_unicode(tmp_path, column):
    tags = pa.ListArray.from_arrays([0, 1, 2], as_text(b"a", b"\xff" if column == "tags" else b"b"))
    ids = as_text(b"1", b"\xff" if column == "id" else b"2")
    pq.write_table(pa.table({"id": ids, "text": ["one", "two"], "tags": tags}), tmp_path / "a.parquet")
    bad = []
    found = list(read_collection(str(tmp_path / "a.parquet"), bad.append))
    assert [(document.id, document.metadata) for document in found] == [("1", {"tags": ["a"]})]
    assert f"row 2: the column '{column}' is not UTF-8" in str(bad[0])


def test_a_date_that_python_does_not_know_is_named(tmp_path):
    dates = pa.array([0, 2**30], pa.int32()).view(pa.date32())
    pq.write_table(pa.table({"text": ["one", "two"], "date": dates}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="row 2: the column 'date' cannot be read"):
        list(read_collection(str(tmp_path / "a.parquet")))


def test_a_corpus_names_the_row(corpus):
    with pytest.raises(InputError, match=r"corpus\.parquet, row 2: the column 'text' is not UTF-8"):
        list(read_passages([str(corpus)]))


@pytest.mark.parametrize(
    "command",
    [
        ["encode", "{corpus}", "-o", "{out}.parquet", "--model", "{model}"],
        ["index", "build", "{corpus}", "-o", "{out}", "--model", "{model}"],
        ["highlight", "{corpus}", "--model", "{model}"],
        ["lm", "evaluate", "{lm}", "{corpus}"],
        ["train", "{recipe}", "-o", "{out}", "--set", 'data.train=["{corpus}"]'],
    ],
    ids=lambda command: command[0],
)
@pytest.mark.filterwarnings("ignore:these vectors:textnuggets.errors.TextnuggetsWarning")
def test_every_command_reports_it_on_one_line(corpus, copier_folder, tmp_path, run, command):
    make_lm().save_pretrained(tmp_path / "lm")
    names = {"corpus": corpus, "out": tmp_path / "out", "model": copier_folder, "lm": tmp_path / "lm"}
    done = run(*(word.format(**names, recipe=make_setting(tmp_path)) for word in command))
    assert done.returncode == 2, done.stderr
    assert "row 2: the column 'text' is not UTF-8" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", [["encode"], ["index", "build"]])
@pytest.mark.filterwarnings("ignore:these vectors:textnuggets.errors.TextnuggetsWarning")
def test_skipping_bad_lines_skips_and_names_the_row(corpus, copier_folder, tmp_path, run, command):
    out = tmp_path / ("out.parquet" if command == ["encode"] else "out")
    done = run(*command, corpus, "-o", out, "--model", copier_folder, "--skip-bad")
    assert done.returncode == 0, done.stderr
    assert f"skipped: {corpus}, row 2: the column 'text' is not UTF-8" in done.stderr
    assert "2 texts" in done.stderr or "2 documents" in done.stderr


@pytest.fixture
def written(tmp_path):
    """A file written here, and its content."""
    table = pa.table({"text": [text * 3 for text in CORPUS], "number": range(len(CORPUS))})
    write_parquet(tmp_path / "a.parquet", table.schema, [table])
    return tmp_path / "a.parquet", table


def test_files_written_here_have_checksums_of_all_pages(written):
    path, _ = written
    data = bytearray(path.read_bytes())
    place = data.index(b"\x28\xb5\x2f\xfd") + 12  # inside the first compressed page
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(path, page_checksum_verification=True)
    for read in (read_table, lambda path: list(read_documents(str(path)))):
        with pytest.raises(InputError, match=r"a\.parquet: damaged .*CRC"):
            read(path)


def test_no_flipped_bit_changes_the_rows_that_are_read(written):
    path, table = written
    data = path.read_bytes()
    names = set()
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            with open_parquet(path) as file:
                rows = [row for batch in read_batches(file, path, 2) for row in to_rows(batch)]
                names.add(tuple(file.schema_arrow.names))
        except InputError:
            continue
        # The footer has no checksum: the name or type of a column may change, which readers of files check.
        if tuple(rows[0]) == ("text", "number") and isinstance(rows[0]["text"], str):
            assert rows == table.to_pylist(), place
    assert ("text", "number") in names
