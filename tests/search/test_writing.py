"""Adding and deleting documents, on disk and on a server."""

from __future__ import annotations

import shutil

import pytest

from tests.search.conftest import IDS
from tests.tiny import CORPUS
from textnuggets import NuggetIndex
from textnuggets.errors import ConfigError, IndexFileError, InputError, TextnuggetsWarning

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


def test_a_document_that_cannot_be_stored_is_named_and_nothing_is_lost(index):
    index.add(IDS[:1], CORPUS[:1])
    for ids, texts, metadata, message in (
        (["b"], [3], None, "the text of 'b' is int"),
        ([""], ["text"], None, "ids must be non-empty strings"),
        (["b"], ["text"], [{"x": object()}], "metadata of 'b' cannot be stored as JSON"),
        (["b"], ["text"], [{"x": float("nan")}], "metadata of 'b' cannot be stored as JSON"),
        (["b"], ["text"], [{1: 2}], "metadata of 'b' cannot be stored as JSON"),
        (["b"], ["text"], [{"x": "\ud800"}], "document 'b' contains an unpaired surrogate"),
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
