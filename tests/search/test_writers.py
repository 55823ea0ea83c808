"""Several processes with one index: a second writer is refused, and readers work on copies."""

from __future__ import annotations

import json
import threading

import pytest

from tests.search.conftest import IDS
from tests.tiny import CORPUS
from textnuggets import NuggetIndex
from textnuggets.errors import IndexFileError
from textnuggets.search.backends import edge
from textnuggets.search.backends import folder as files

# Texts of these tests have characters that the tiny tokenizer does not know.
pytestmark = pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")


def state(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_command_that_writes_is_refused_in_one_line_while_an_index_is_open(run, model, tmp_path):
    place = tmp_path / "index"
    (tmp_path / "docs.txt").write_text("A line.\n")
    with NuggetIndex.create(place, model) as index:
        index.add(IDS, CORPUS)
        before = state(place)
        for arguments in (
            ["index", tmp_path / "docs.txt", "-o", place, "--model", model.config.name_or_path],
            ["index", "add", place, tmp_path / "docs.txt"],
            ["index", "delete", place, "doc-0"],
            ["index", "compact", place],
            ["index", "check", place],
        ):
            failed = run(*arguments)
            assert failed.returncode == 2
            assert f"{place} is open in another process" in failed.stderr
            assert failed.stderr.count("\n") == 1
        assert state(place) == before
    assert run("index", "add", place, tmp_path / "docs.txt").returncode == 0


def test_an_index_that_is_being_created_is_not_created_twice(model, tmp_path, monkeypatch):
    """The second creation starts while the first one is at work, and after its manifest is written."""
    place = tmp_path / "index"
    refused = []
    write = files.write_manifest

    def write_then_create_again(folder, manifest):
        write(folder, manifest)
        with pytest.raises(IndexFileError, match=r"open in another process|already exists") as raised:
            NuggetIndex.create(place, model)
        refused.append(raised)

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_manifest", write_then_create_again)
        index = NuggetIndex.create(place, model)
    with index:
        assert len(refused) == 2
        index.add(IDS, CORPUS)
        assert len(index) == 5


def test_an_index_that_another_process_created_before_the_lock_is_kept(model, tmp_path, monkeypatch):
    place = tmp_path / "index"
    lock = files.lock_folder

    def create_another_then_lock(folder):
        monkeypatch.setattr(files, "lock_folder", lock)
        with NuggetIndex.create(place, model) as other:
            other.add(IDS, CORPUS)
        return lock(folder)

    monkeypatch.setattr(files, "lock_folder", create_another_then_lock)
    with pytest.raises(IndexFileError, match="already exists"):
        NuggetIndex.create(place, model)
    with NuggetIndex.open(place) as index:
        assert len(index) == 5


def test_an_index_that_another_process_compacted_before_the_lock_is_opened(model, tmp_path, monkeypatch):
    place = tmp_path / "index"
    with NuggetIndex.create(place, model) as index:
        index.add(IDS, CORPUS)
    lock = files.lock_folder

    def compact_then_lock(folder):
        monkeypatch.setattr(files, "lock_folder", lock)
        with NuggetIndex.open(place) as other:
            other.compact()
        return lock(folder)

    monkeypatch.setattr(files, "lock_folder", compact_then_lock)
    with NuggetIndex.open(place) as index:
        assert index.manifest.engine == "engine-2"
        assert len(index) == 5


def test_readers_find_what_was_written_when_they_were_opened(model, tmp_path):
    place = tmp_path / "index"
    with NuggetIndex.create(place, model) as index:
        index.add(IDS[:3], CORPUS[:3])
        with NuggetIndex.open(place, model, read_only=True) as first:
            index.add(IDS[3:], CORPUS[3:])
            index.add(["doc-0"], ["Other words."])
            with NuggetIndex.open(place, read_only=True) as second:
                index.delete(["doc-1"])
                index.compact()
                index.add(["new"], ["New."])
                assert len(second) == 5
                assert second.search("Other words.", k=1)[0].text == "Other words."
                assert second.search(CORPUS[1], k=1)[0].id == "doc-1"
            assert {hit.id: hit.text for hit in first.search("cat")} == dict(
                zip(IDS, CORPUS[:3], strict=False)
            )
        assert len(index) == 5
        assert index.search("New.", k=1)[0].id == "new"
    assert not list(place.glob(".*.tmp"))
    assert NuggetIndex.check(place).damage == []


def test_a_reader_beside_another_process_cannot_write(model, tmp_path):
    place = tmp_path / "index"
    with NuggetIndex.create(place, model) as index:
        index.add(IDS, CORPUS)
        before = state(place)
        with NuggetIndex.open(place, model, read_only=True) as reader:
            for change in (
                lambda: reader.add(["a"], ["Text."]),
                lambda: reader.delete(["doc-0"]),
                reader.compact,
            ):
                with pytest.raises(IndexFileError, match="so it can only be read"):
                    change()
        assert state(place) == before


def test_commands_that_read_work_while_another_process_writes(run, model, tmp_path):
    place = tmp_path / "index"
    with NuggetIndex.create(place, model) as index:
        index.add(IDS, CORPUS)
        assert json.loads(run("index", "info", place).stdout)["documents"] == 5
        assert run("search", place, CORPUS[2], "-k", "1").stdout.startswith("1. doc-2")
        index.add(["more"], ["More."])
        assert len(index) == 6


def test_a_reader_waits_until_a_change_is_complete(model, tmp_path):
    place = tmp_path / "index"
    with NuggetIndex.create(place, model) as index:
        index.add(IDS, CORPUS)
        opened = []

        def read():
            with NuggetIndex.open(place, model, read_only=True) as reader:
                opened.append(len(reader))

        reading = threading.Thread(target=read)
        with files.lock_files(place):
            reading.start()
            reading.join(0.3)
            assert not opened
        reading.join()
        assert opened == [5]


def test_a_copy_is_not_made_on_a_full_disk(model, tmp_path, monkeypatch):
    place = tmp_path / "index"
    with NuggetIndex.create(place, model) as index:
        index.add(IDS, CORPUS)
        monkeypatch.setattr(edge, "SPARE", 1 << 60)
        with pytest.raises(IndexFileError, match=r"the disk has .* MB left"):
            NuggetIndex.open(place, model, read_only=True)
    assert not list(place.glob(".*.tmp"))
