"""Adding and deleting documents, on disk and on a server."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil

import numpy as np
import pytest

from tests.search.conftest import IDS
from tests.tiny import CORPUS
from textnuggets import NuggetIndex
from textnuggets.errors import ConfigError, IndexFileError, InputError, TextnuggetsWarning
from textnuggets.model.fingerprint import fingerprint
from textnuggets.model.parquet import nugget_schema, to_table, write_parquet

# Texts of these tests have characters that the tiny tokenizer does not know.
pytestmark = pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")


def test_adding_again_replaces_and_what_is_unchanged_is_left_alone(index, monkeypatch):
    assert index.add(IDS, CORPUS) == (5, 0, 0)
    encoded = []
    encode = type(index.model).encode
    monkeypatch.setattr(type(index.model), "encode", lambda *a, **k: encoded.append(a[1]) or encode(*a, **k))
    assert index.add(IDS, [*CORPUS[:4], "Something else."]) == (1, 4, 0)
    assert encoded == [["Something else."]]
    assert len(index) == 5
    assert index.search("Something else.", k=1)[0].text == "Something else."
    assert index.add(["a", "a"], ["first", "second"]) == (1, 0, 1)
    assert {hit.text for hit in index.search("second", k=9) if hit.id == "a"} == {"second"}


def test_long_documents_are_written_before_many_have_come_together(index, monkeypatch):
    monkeypatch.setattr("textnuggets.search.writing.CHARACTERS", 50)
    written = []
    put = index._backend.engine.put
    monkeypatch.setattr(index._backend.engine, "put", lambda items: written.append(len(items)) or put(items))
    index.add(["x", "y", "z", "w"], [f"{'cat ' * 20} {i}" for i in range(2)] + ["dog", "mat"])
    assert written == [1, 1, 2]


def test_deleted_documents_are_not_found(index):
    index.add(IDS, CORPUS)
    assert index.delete(["doc-1", "doc-9"]) == ["doc-9"]
    assert len(index) == 4
    assert "doc-1" not in [hit.id for hit in index.search(CORPUS[1], k=9)]


def nested(levels):
    value = 1
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def test_metadata_comes_back_exactly_also_after_compacting(index):
    # Engines round large integers and some floats, and cannot read what is nested deeply.
    generator = random.Random(0)
    metadata = {
        "integers": [2**63, -(2**63) - 1, 2**64, 10**30, -(10**400)],
        "floats": [generator.uniform(-1, 1) * 10.0**n for n in range(-200, 200)],
        "deep": nested(100),
        "": None,
        'a="b': "c=d",
        "\0": "\U0001f600",
    }
    index.add(["a"], ["Some text."], [metadata])
    assert index.search("text")[0].metadata == metadata
    if index.place.startswith("http"):
        return
    index.compact()
    assert index.search("text")[0].metadata == metadata
    assert index.add(["a"], ["Some text."], [metadata]).unchanged == 1


def test_a_document_that_cannot_be_stored_is_named_and_nothing_is_lost(index):
    index.add(IDS[:1], CORPUS[:1])
    for ids, texts, metadata, message in (
        (["b"], [3], None, "the text of 'b' is int"),
        ([""], ["text"], None, "ids must be non-empty strings"),
        (["b"], ["text"], [{"x": object()}], "metadata of 'b' cannot be stored as JSON"),
        (["b"], ["text"], [{"x": float("nan")}], "metadata of 'b' cannot be stored as JSON"),
        (["b"], ["text"], [{1: 2}], "metadata of 'b' cannot be stored as JSON"),
        (["b"], ["text"], [{"x": "\ud800"}], r"metadata of 'b' cannot be .*: 'x' \(it contains an unpaired"),
        (
            ["b"],
            ["text"],
            [{"x": [{"\ud800": 1}]}],
            r"metadata of 'b' .*: 'x' \(it contains an unpaired surrogate",
        ),
        (["b"], ["text"], [{"x": {"y": {1: 2}}}], r"metadata of 'b' .*: 'x' \(keys must be strings"),
        (["b"], ["text"], [{"x": 10**5000}], r"metadata of 'b' .*: 'x' \(Exceeds the limit"),
        (["b"], ["text"], [{"x": nested(101)}], r"metadata of 'b' .*: 'x' \(it has more than 100 levels"),
        (["b\ud800"], ["text"], None, "contains an unpaired surrogate"),
    ):
        with pytest.raises(InputError, match=message):
            index.add(ids, texts, metadata)
    with pytest.raises(ConfigError, match="k must be a whole number"):
        index.search("text", k=0)
    assert len(index) == 1


def test_adding_many_batches_gives_one_warning(model, tmp_path, monkeypatch):
    monkeypatch.setattr("textnuggets.search.writing.BATCH", 2)
    with NuggetIndex.create(tmp_path / "index", model) as index, pytest.warns(TextnuggetsWarning) as given:
        index.add(["a", "b", "c", "d", "e"], ["the cat 猫"] * 5)
    assert len(given) == 1


def test_what_was_encoded_before_is_not_encoded_again(copier, copier_folder, tmp_path, run, monkeypatch):
    from textnuggets.bulk.encode import encode_to_parquet
    from textnuggets.io.documents import Document

    (tmp_path / "encoded").mkdir()
    documents = [Document(name, text) for name, text in zip(IDS, CORPUS, strict=True)]
    for number, part in enumerate((documents[:3], documents[3:])):
        out = tmp_path / "encoded" / f"{number}.parquet"
        encode_to_parquet(copier, part, out, name="copier", with_text=True)
    monkeypatch.setattr(type(copier), "encode", lambda *_, **__: pytest.fail("encoded again"))
    place = tmp_path / "index"
    built = run("index", tmp_path / "encoded", "-o", place, "--model", copier_folder)
    assert "5 documents written, 5 in all" in built.stderr, built.stderr
    again = run("index", "add", place, tmp_path / "encoded" / "0.parquet")
    assert "0 documents written, 3 unchanged" in again.stderr
    monkeypatch.undo()
    with NuggetIndex.open(place) as index:
        assert index.search(CORPUS[4], k=1)[0].text == CORPUS[4]


def test_nuggets_of_other_weights_or_another_ratio_are_refused(copier, model, tmp_path):
    from textnuggets.bulk.encode import encode_to_parquet
    from textnuggets.io.documents import Document

    out = tmp_path / "nuggets.parquet"
    encode_to_parquet(copier, [Document("a", "text")], out, name="copier", ratio=0.3)
    with (
        NuggetIndex.create(tmp_path / "other", model) as index,
        pytest.raises(IndexFileError, match="was made by 'copier'"),
    ):
        index.add_encoded(out)
    with (
        NuggetIndex.create(tmp_path / "ratio", copier, ratio=0.5) as index,
        pytest.raises(IndexFileError, match=r"at the ratio 0\.3, the index at 0\.5"),
    ):
        index.add_encoded(out)
    with (
        NuggetIndex.create(tmp_path / "text", copier, ratio=0.3) as index,
        pytest.raises(InputError, match="holds no texts"),
    ):
        index.add_encoded(out)


def test_a_disk_that_is_nearly_full_is_not_written_to(model, tmp_path, monkeypatch):
    from collections import namedtuple

    with NuggetIndex.create(tmp_path / "index", model) as index:
        index.add(IDS[:2], CORPUS[:2])
        usage = namedtuple("usage", "free")(1_000_000)
        with monkeypatch.context() as patched:
            patched.setattr(shutil, "disk_usage", lambda _: usage)
            with pytest.raises(IndexFileError, match="the disk has 1 MB left"):
                index.add(IDS[2:], CORPUS[2:])
        assert len(index) == 2


BAD_LINES = [
    ('{"id": "nan", "text": "Text.", "x": NaN}', "'x' (Out of range float values"),
    ('{"id": "", "text": "Text."}', "ids must be non-empty strings"),
    (r'{"id": "s", "text": "Text.", "x": ["\ud800"]}', "'x' (it contains an unpaired surrogate"),
    (r'{"id": "k", "text": "Text.", "\udfff": 1}', r"'\udfff' (it contains an unpaired surrogate"),
]


@pytest.mark.parametrize("source", ["file", "folder", "stdin"])
def test_lines_that_cannot_be_stored_are_named_and_skipped_with_skip_bad(run, model, tmp_path, source):
    good = [json.dumps({"id": name, "text": text}) for name, text in zip(IDS, CORPUS, strict=True)]
    lines = [good[0]]
    for number, (line, _) in enumerate(BAD_LINES, 1):
        lines += [line, good[number]]
    docs = tmp_path / "docs"
    docs.mkdir()
    path = docs / "lines.jsonl"
    path.write_text("\n".join(lines) + "\n")
    given = {"file": path, "folder": docs, "stdin": "-"}[source]
    stdin = path.read_text() if source == "stdin" else ""
    place = tmp_path / "index"
    NuggetIndex.create(place, model).close()

    failed = run("index", "add", place, given, stdin=stdin)
    assert failed.returncode == 2
    assert "line 2: the metadata of 'nan' cannot be stored as JSON: 'x'" in failed.stderr

    done = run("index", "add", place, given, "--skip-bad", stdin=stdin)
    assert done.returncode == 0, done.stderr
    skipped = [line for line in done.stderr.splitlines() if line.startswith("skipped: ")]
    named = "standard input" if source == "stdin" else str(path)
    for number, (line, (_, problem)) in enumerate(zip(skipped, BAD_LINES, strict=True), 1):
        assert line.startswith(f"skipped: {named}, line {2 * number}: ")
        assert problem in line
    assert "5 documents written, 5 in all" in done.stderr


@pytest.mark.parametrize("column", ["vectors", "scores"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_vectors_and_scores_that_are_not_finite_are_refused(copier, tmp_path, column, value):
    nuggets = copier.encode(CORPUS[:3], ratio=0.5)
    broken = np.array(getattr(nuggets[1], column))
    broken[0] = value
    rows = [nuggets[0], dataclasses.replace(nuggets[1], **{column: broken}), nuggets[2]]
    about = {"weights": fingerprint(copier), "ratio": 0.5}
    schema = nugget_schema(rows[0].vectors.shape[1], "float32", about, with_text=True)
    path = tmp_path / "nuggets.parquet"
    write_parquet(path, schema, [to_table(IDS[:3], rows, schema, CORPUS[:3])])
    place = tmp_path / "index"
    with NuggetIndex.create(place, copier, ratio=0.5) as index:
        for skipping in (
            {},
            {"on_bad": lambda _: None},
        ):  # such a file is damaged, so no row of it is trusted
            with pytest.raises(InputError, match=rf"row 2: the column '{column}' has NaN or infinite values"):
                index.add_encoded(path, **skipping)
            assert len(index) == 0


def test_documents_whose_vectors_are_not_finite_are_refused(model, tmp_path, monkeypatch):
    encode = type(model).encode

    def broken(*arguments, **options):
        made = encode(*arguments, **options)
        return [dataclasses.replace(item, vectors=item.vectors * np.float32(np.nan)) for item in made]

    with NuggetIndex.create(tmp_path / "index", model) as index:
        monkeypatch.setattr(type(model), "encode", broken)
        with pytest.raises(InputError, match="'doc-0' holds values that are not finite"):
            index.add(IDS, CORPUS)
        assert len(index) == 0
