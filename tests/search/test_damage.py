"""Damage to an index: found by its checksums, when it is opened, or in the documents that a search returns."""

from __future__ import annotations

import json
import random
import shutil

import numpy as np
import pytest

from tests.search.conftest import IDS
from tests.tiny import CORPUS
from textnuggets import NuggetIndex
from textnuggets.errors import IndexFileError
from textnuggets.search.backends import folder as files
from textnuggets.search.backends.edge_backend import EdgeBackend

# Texts of these tests have characters that the tiny tokenizer does not know.
pytestmark = pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")


@pytest.fixture(scope="module")
def compacted(model, tmp_path_factory):
    """Folder of a compacted index, shared: tests must restore what they change."""
    folder = tmp_path_factory.mktemp("compacted") / "index"
    with NuggetIndex.create(folder, model, ratio=0.2, dtype="float16") as index:
        index.add(IDS, CORPUS, [{"n": i} for i in range(5)])
        index.compact()
    return folder


@pytest.fixture
def copied(compacted, tmp_path):
    return shutil.copytree(compacted, tmp_path / "index")


def positions(path, generator):
    """Return positions of bytes to change: one anywhere, and one among those that are not zero."""
    data = np.fromfile(path, np.uint8)
    used = np.flatnonzero(data).tolist() or [0]
    return {generator.randrange(len(data)), generator.choice(used)}


def flip(path, position, generator=None):
    with path.open("rb+") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ (generator.randrange(1, 256) if generator else 1)]))
    return byte


def restore(path, position, byte):
    with path.open("rb+") as file:
        file.seek(position)
        file.write(bytes([byte]))


def test_every_changed_byte_of_a_compacted_index_is_found_by_its_check(compacted):
    generator = random.Random(0)
    checksums = files.read_manifest(compacted).checksums
    everything = {p.relative_to(compacted).as_posix() for p in compacted.rglob("*") if p.is_file()}
    assert everything - checksums.keys() == {"index.json", ".lock", ".busy"}
    for name in checksums:
        path = compacted / name
        for position in positions(path, generator):
            byte = flip(path, position, generator)
            _, damage = EdgeBackend(compacted).check_files()
            restore(path, position, byte)
            assert damage == [f"{name} has other content than when it was written"], position
    assert NuggetIndex.check(compacted) == (len(checksums), 5, [])


def test_a_changed_byte_of_the_manifest_is_noticed_or_has_no_effect(compacted, tmp_path):
    generator = random.Random(0)
    (tmp_path / "index").mkdir()
    before = (compacted / "index.json").read_bytes()
    refused = 0
    for _ in range(300):
        data = bytearray(before)
        data[generator.randrange(len(data))] ^= generator.randrange(1, 256)
        (tmp_path / "index" / "index.json").write_bytes(data)
        try:
            read = files.read_manifest(tmp_path / "index")
        except IndexFileError:
            refused += 1
        else:
            assert read == files.read_manifest(compacted)
    assert refused > 200


def test_the_command_check_lists_the_damage_and_fails(run, copied):
    sound = run("index", "check", copied)
    assert sound.returncode == 0
    assert "5 documents are sound" in sound.stderr
    assert "files match their checksums" in sound.stderr
    (vectors,) = copied.glob("engine-2/segments/*/vector_storage/vectors/chunk_0.mmap")
    flip(vectors, 3)
    size = (copied / "documents").stat().st_size
    (copied / "documents").write_text("55")
    (copied / "engine-2" / "wal" / "open-1").unlink()
    (copied / "engine-2" / "new").touch()
    found = run("index", "check", copied)
    assert found.returncode == 2
    assert "is damaged (4 problems)" in found.stderr
    for name, problem in (
        (vectors, "has other content than when it was written"),
        (copied / "documents", f"has 2 bytes instead of {size}"),
        (copied / "engine-2" / "wal" / "open-1", "is missing"),
        (copied / "engine-2" / "new", "was added"),
    ):
        assert f"{copied}: {name.relative_to(copied)} {problem}\n" in found.stdout


def test_a_panic_of_the_engine_is_one_error_without_its_stack(model, tmp_path, capfd):
    with NuggetIndex.create(tmp_path / "index", model) as index:  # not compacted, so without checksums
        index.add(IDS, CORPUS)
    for status in (tmp_path / "index").rglob("vector_storage/*/status.dat"):
        whole = status.read_bytes()
        status.write_bytes(whole[:3])
        with pytest.raises(IndexFileError, match="engine-1: "):
            NuggetIndex.open(tmp_path / "index", model)
        status.write_bytes(whole)
    for chunk in (tmp_path / "index").rglob("vector_storage/offsets/chunk_0.mmap"):
        chunk.rename(tmp_path / "chunk")
        with pytest.raises(IndexFileError, match="engine-1: "):
            NuggetIndex.open(tmp_path / "index", model)
        (tmp_path / "chunk").rename(chunk)
    assert "panicked" not in capfd.readouterr().err
    NuggetIndex.open(tmp_path / "index", model).close()


def test_small_files_and_the_sizes_of_large_ones_are_compared_when_an_index_is_opened(compacted):
    checksums = files.read_manifest(compacted).checksums
    small = [name for name, (size, _) in checksums.items() if size <= files.SMALL]
    assert len(small) > 10
    for name in small:
        byte = flip(compacted / name, 0)
        with pytest.raises(IndexFileError, match=f"is damaged: {name} has other content .*index check"):
            NuggetIndex.open(compacted)
        restore(compacted / name, 0, byte)
    large = next(compacted.glob("engine-2/segments/*/payload_storage/page_0.dat"))
    size = large.stat().st_size
    assert size > files.SMALL
    with large.open("rb+") as file:
        file.truncate(size - 1)
    with pytest.raises(IndexFileError, match=r"page_0.dat has .* bytes instead of"):
        NuggetIndex.open(compacted)
    with large.open("rb+") as file:
        file.truncate(size)
    NuggetIndex.open(compacted).close()


def test_checksums_hold_until_the_next_write(model, tmp_path):
    place = tmp_path / "index"
    with NuggetIndex.create(place, model, ratio=0.2) as index:
        index.add(IDS, CORPUS)
        assert index.info()["checksums"] is False
    assert NuggetIndex.check(place) == (0, 5, [])
    for write in (lambda index: index.delete(["doc-1"]), lambda index: index.add(["new"], ["New."])):
        with NuggetIndex.open(place) as index:
            index.compact()
        for _ in range(2):
            with NuggetIndex.open(place) as index:
                assert index.info()["checksums"] is True
                index.search("cat", filter={"n": 1})
                index.add(["doc-0"], CORPUS[:1])  # unchanged
        count = len(index.manifest.checksums)
        assert NuggetIndex.check(place).files == count > 10
        with NuggetIndex.open(place) as index:
            write(index)
            assert index.info()["checksums"] is False
        assert NuggetIndex.check(place)[::2] == (0, [])


@pytest.mark.parametrize(
    "write", [lambda index: index.add(["x"], ["Text."]), lambda index: index.delete(["doc-0"])]
)
def test_checksums_are_given_up_before_a_file_is_changed(copied, monkeypatch, write):
    before = files.read_manifest(copied)
    damage = []
    original = files.write_manifest

    def write_manifest(folder, manifest):
        damage.append((manifest.checksums, list(files.find_damage(folder, before))))
        original(folder, manifest)

    monkeypatch.setattr(files, "write_manifest", write_manifest)
    with NuggetIndex.open(copied) as index:
        write(index)
    assert damage == [(None, [])]
    assert list(files.find_damage(copied, before))


@pytest.mark.parametrize(
    ("value", "k"), [(np.inf, 1), (np.inf, 9), (np.nan, 9), (9.0, 1), (-9.0, 9)], ids=str
)
def test_a_search_refuses_impossible_scores_and_vectors(copied, value, k):
    (vectors,) = copied.glob("engine-2/segments/*/vector_storage/vectors/chunk_0.mmap")
    numbers = np.memmap(vectors, np.float16, "r+")
    (used,) = np.nonzero(numbers)
    numbers[used] = np.where(numbers[used] > 0, value, numbers[used])
    numbers.flush()
    with (
        NuggetIndex.open(copied) as index,
        pytest.raises(IndexFileError, match="run 'textnuggets index check'"),
    ):
        index.search(CORPUS[0], k)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"text": "Other words."}, "its text and metadata do not match their hash"),
        ({"metadata": '{"n": 7}', "labels": ["n=7"]}, "its text and metadata do not match their hash"),
        ({"labels": ["n=7"]}, "its labels do not match its metadata"),
        ({"metadata": "{"}, "its metadata is damaged"),
        ({"metadata": "[]"}, "its metadata is damaged"),
        ({"text": 3}, "its text is int"),
        ({"places": None}, "its layout is damaged"),
    ],
)
def test_a_damaged_document_is_found_without_checksums(model, tmp_path, change, problem):
    with NuggetIndex.create(tmp_path / "index", model, ratio=0.2) as index:
        index.add(IDS, CORPUS, [{"n": i} for i in range(5)])
        engine = index._backend.engine
        (document,) = (item for item in engine.documents() if item.id == "doc-2")
        engine.put([document._replace(payload={**document.payload, **change})])
        with pytest.raises(IndexFileError, match=f"document 'doc-2' is damaged: {problem}.*index check"):
            index.search(CORPUS[2])
    files, documents, damage = NuggetIndex.check(tmp_path / "index")
    assert (files, documents, len(damage)) == (0, 5, 1)
    assert damage[0].startswith(f"document 'doc-2' is damaged: {problem}")


def without(data, key):
    return {name: value for name, value in data.items() if name != key}


@pytest.mark.parametrize(
    "change",
    [
        lambda _: [],
        lambda _: None,
        lambda _: "index",
        lambda data: without(data, "format"),
        lambda data: without(data, "ratio"),
        lambda data: {**data, "more": 1},
        lambda data: {**data, "format": [1]},
        lambda data: {**data, "ratio": "0.1"},
        lambda data: {**data, "ratio": float("nan")},
        lambda data: {**data, "query_ratio": 2},
        lambda data: {**data, "dimensions": 0},
        lambda data: {**data, "dtype": []},
        lambda data: {**data, "store_text": "yes"},
        lambda data: {**data, "model": None},
        lambda data: {**data, "fingerprint": 3},
        lambda data: {**data, "engine": "../elsewhere"},
        lambda data: {**data, "engine": "engine-1/.."},
        lambda data: {**data, "obsolete": ".."},
        lambda data: {**data, "complete": 1},
        lambda data: {**data, "checksums": {"documents": 3}},
        lambda data: {**data, "checksums": []},
    ],
)
def test_a_manifest_of_another_shape_is_refused_in_one_line(run, model, tmp_path, change):
    place = tmp_path / "index"
    NuggetIndex.create(place, model).close()
    path = place / "index.json"
    path.write_text(json.dumps(change(without(json.loads(path.read_text()), "digest"))))
    (tmp_path / "docs.txt").write_text("A line.\n")
    for arguments in (
        ["index", "info", place],
        ["index", "check", place],
        ["index", tmp_path / "docs.txt", "-o", place, "--model", model.config.name_or_path],
    ):
        failed = run(*arguments)
        assert failed.returncode == 2
        assert failed.stderr.startswith(f"error: {place}")
        assert failed.stderr.count("\n") == 1


@pytest.mark.parametrize("text", ["", "{", '{"format": 1', "[" * 100_000, "\x00", "\xff", "1" * 5000])
def test_a_manifest_that_is_not_json_is_refused_in_one_line(run, model, tmp_path, text):
    NuggetIndex.create(tmp_path / "index", model).close()
    (tmp_path / "index" / "index.json").write_bytes(text.encode("latin-1"))
    failed = run("index", "info", tmp_path / "index")
    assert failed.returncode == 2
    assert "index.json is damaged" in failed.stderr
    assert failed.stderr.count("\n") == 1
