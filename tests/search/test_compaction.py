"""Compacting an index, and compactions that are interrupted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.search.conftest import IDS
from tests.tiny import CORPUS
from textnuggets import NuggetIndex
from textnuggets.errors import IndexFileError

# Texts of these tests have characters that the tiny tokenizer does not know.
pytestmark = pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")


def bytes_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_deleted_and_replaced_texts_are_gone_from_the_disk_after_compacting(model, tmp_path):
    with NuggetIndex.create(tmp_path / "index", model) as index:
        index.add(IDS, CORPUS)
        index.add(["secret", "changed"], ["The password is Sesame42.", "Old words: Xyzzy17."])
        index.add(["changed"], ["New words."])
        index.delete(["secret"])
        before = sorted(hit.id for hit in index.search("words", k=20))
        index.compact()
        assert sorted(hit.id for hit in index.search("words", k=20)) == before
        assert len(index) == 6
    for word in (b"Sesame42", b"Xyzzy17", b"secret"):
        assert word not in bytes_of(tmp_path / "index")
    assert b"New words." in bytes_of(tmp_path / "index")
    assert len(list((tmp_path / "index").glob("engine-*"))) == 1


def test_a_compacted_index_has_no_log_and_takes_every_change(model, tmp_path, monkeypatch):
    # Small batches make many updates, and later updates must have higher numbers.
    monkeypatch.setattr("textnuggets.search.writing.BATCH", 2)
    monkeypatch.setattr("textnuggets.search.backends.edge_backend.BATCH", 2)
    ids = [f"d{i}" for i in range(40)]
    with NuggetIndex.create(tmp_path / "index", model) as index:
        index.add(ids, [CORPUS[i % len(CORPUS)] for i in range(40)])
        for _ in range(2):
            index.compact()
        logged = b"".join(file.read_bytes() for file in tmp_path.glob("index/engine-*/wal/*"))
        assert logged
        assert b"d7" not in logged
        for i, name in enumerate(ids):
            if i % 2:
                index.add([name], [f"the dog {i}"], [{"new": i}])
            elif i % 4:
                index.delete([name])
    with NuggetIndex.open(tmp_path / "index", model) as index:
        assert len(index) == 30
        found = {hit.id: hit for hit in index.search("dog", k=40)}
        assert {name for name, hit in found.items() if hit.metadata} == set(ids[1::2])
        assert all(found[name].text == f"the dog {i}" for i, name in enumerate(ids) if i % 2)


def test_an_interrupted_compaction_leaves_the_index_as_it_was(model, tmp_path, monkeypatch):
    from textnuggets.search.backends import edge

    with NuggetIndex.create(tmp_path / "index", model) as index:
        index.add(IDS, CORPUS)

        def fail(*_):
            raise IndexFileError("disk full")

        with monkeypatch.context() as patched:
            patched.setattr(edge.EdgeEngine, "optimize", fail)
            with pytest.raises(IndexFileError, match="disk full"):
                index.compact()
        assert len(index) == 5
        index.add(["more"], ["More."])
        assert [p.name for p in (tmp_path / "index").glob("engine-*")] == ["engine-1"]


def test_vectors_of_four_bits_are_not_rounded_again_when_they_are_compacted(model, tmp_path):
    def directions(index):
        stored = {item.id: item.vectors for item in index._backend.engine.documents()}
        return {name: item / np.linalg.norm(item, axis=1, keepdims=True) for name, item in stored.items()}

    with NuggetIndex.create(tmp_path / "index", model, ratio=0.2, dtype="int4") as index:
        index.add(IDS, CORPUS)
        before = directions(index)
        for _ in range(3):
            index.compact()
        after = directions(index)
        assert all(after[name] == pytest.approx(before[name], abs=1e-6) for name in IDS)
    assert NuggetIndex.check(tmp_path / "index").damage == []
