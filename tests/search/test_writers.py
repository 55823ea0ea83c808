"""Two writers of one index: the second is refused, and nothing is mixed."""

from __future__ import annotations

import pytest

from tests.search.conftest import IDS
from tests.tiny import CORPUS
from textnuggets import NuggetIndex
from textnuggets.errors import IndexFileError
from textnuggets.search.backends import folder as files

# Texts of these tests have characters that the tiny tokenizer does not know.
pytestmark = pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")


def state(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_command_is_refused_in_one_line_while_an_index_is_open(run, model, tmp_path):
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
            ["index", "info", place],
            ["search", place, "cat"],
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
