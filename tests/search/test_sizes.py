"""Sizes in `index info`: counted as documents come and go, and never wrong after a crash."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.faults import crash_everywhere
from tests.search.conftest import IDS
from tests.tiny import CORPUS
from textnuggets import NuggetIndex
from textnuggets.search.backends import folder as files
from textnuggets.search.sizes import Sizes

# Texts of these tests have characters that the tiny tokenizer does not know.
pytestmark = pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")
KEYS = (
    "text_bytes",
    "tokens",
    "vectors",
    "vector_bytes",
    "bytes_per_token",
    "vector_bytes_per_token",
    "bytes_per_vector",
)


def sizes_of(model, texts, ratio=0.2):
    nuggets = model.encode(texts, ratio=ratio)
    return Sizes(
        sum(map(len, nuggets)),
        sum(item.token_count for item in nuggets),
        sum(len(text.encode()) for text in texts),
    )


def told(index):
    info = index.info()
    return Sizes(info["vectors"], info["tokens"], info["text_bytes"])


@pytest.mark.parametrize("store_text", [True, False])
def test_sizes_follow_every_change(model, tmp_path, store_text):
    place = tmp_path / "index"
    with NuggetIndex.create(place, model, ratio=0.2, store_text=store_text) as index:
        assert told(index) == Sizes()
        assert index.info()["bytes_per_token"] is None
        index.add(IDS, CORPUS)
        assert told(index) == sizes_of(model, CORPUS)
        texts = [*CORPUS[:3], "A longer text \u00fc\u00df with other words. " * 30]  # several windows
        index.add(["doc-3"], texts[3:])
        index.add(["doc-0", "doc-0"], ["first", CORPUS[0]])
        index.delete(["doc-4", "none"])
        assert told(index) == sizes_of(model, texts)
    with NuggetIndex.open(place) as index:
        assert told(index) == sizes_of(model, texts)
        index.compact()
        assert told(index) == sizes_of(model, texts)
    with NuggetIndex.open(place) as index:
        assert told(index) == sizes_of(model, texts)


@pytest.mark.parametrize(
    ("dtype", "size"), [("float32", 32 * 4), ("float16", 32 * 2), ("int8", 32 + 4), ("int4", 32 / 2 + 4)]
)
def test_bytes_per_token_are_those_of_vectors_and_of_the_folder(model, tmp_path, dtype, size):
    with NuggetIndex.create(tmp_path / "index", model, ratio=0.2, dtype=dtype) as index:
        index.add(IDS, CORPUS)
        info = index.info()
    expected = sizes_of(model, CORPUS)
    assert info["vector_bytes"] == expected.vectors * size
    assert info["vector_bytes_per_token"] == pytest.approx(info["vector_bytes"] / expected.tokens, abs=0.01)
    assert info["bytes_per_vector"] == pytest.approx(info["bytes"] / expected.vectors, abs=0.01)
    assert info["bytes_per_token"] == pytest.approx(info["bytes"] / expected.tokens, abs=0.01)


def test_the_command_says_what_an_early_index_does_not_know_until_it_is_compacted(run, model, tmp_path):
    place = tmp_path / "index"
    with NuggetIndex.create(place, model, ratio=0.2) as index:
        index.add(IDS, CORPUS)
    (place / "documents").write_text("5")  # as early versions wrote it
    info = json.loads(run("index", "info", place).stdout)
    assert {key: info[key] for key in KEYS} == dict.fromkeys(KEYS, "unknown")
    with NuggetIndex.open(place) as index:
        index.add(["more"], ["More."])
        assert index.info()["tokens"] is None
    assert run("index", "compact", place).returncode == 0
    info = json.loads(run("index", "info", place).stdout)
    assert info["tokens"] == sizes_of(model, [*CORPUS, "More."]).tokens


def test_an_early_index_is_still_sound_if_compacting_is_interrupted(model, tmp_path, monkeypatch):
    place = tmp_path / "index"
    with NuggetIndex.create(place, model, ratio=0.2) as index:
        index.add(IDS, CORPUS)
        index.compact()
    (place / "documents").write_text("5")
    manifest = files.read_manifest(place)
    files.write_manifest(place, replace(manifest, checksums=files.take_checksums(place, manifest.engine)))
    with NuggetIndex.open(place) as index, monkeypatch.context() as patched:
        patched.setattr(files, "take_checksums", lambda *_: pytest.fail("interrupted"))
        with pytest.raises(pytest.fail.Exception):
            index.compact()
    assert NuggetIndex.check(place).damage == []


@pytest.mark.parametrize(
    "change",
    [lambda index: index.add(["a", "d"], CORPUS[3:]), lambda index: index.delete(["b"])],
    ids=["add", "delete"],
)
def test_sizes_are_right_or_unknown_after_a_crash_anywhere(model, tmp_path, change):
    opened = {}

    def prepare(folder):
        opened[folder] = NuggetIndex.create(folder / "index", model, ratio=0.2)
        opened[folder].add(["a", "b", "c"], CORPUS[:3])

    found = set()
    for folder in crash_everywhere(prepare, lambda folder: change(opened[folder]), tmp_path):
        opened[folder].close()
        with NuggetIndex.open(folder / "index", model) as index:
            texts = [hit.text for hit in index.search("cat", k=9)]
            is_known = index.info()["tokens"] is not None
            if is_known:
                assert told(index) == sizes_of(model, texts)
            found.add((len(texts), is_known))
    assert {is_known for _, is_known in found} == {True, False}


def test_a_damaged_document_can_be_deleted_and_makes_sizes_unknown(model, tmp_path):
    with NuggetIndex.create(tmp_path / "index", model, ratio=0.2) as index:
        index.add(IDS, CORPUS)
        engine = index._backend.engine
        (stored,) = (item for item in engine.documents() if item.id == "doc-2")
        engine.put([stored._replace(payload={**stored.payload, "places": "AAAA"})])
        assert index.delete(["doc-2"]) == []
        assert index.info()["tokens"] is None
        index.compact()
        assert told(index) == sizes_of(model, [text for i, text in enumerate(CORPUS) if i != 2])


def test_a_server_does_not_count_sizes(index):
    index.add(IDS, CORPUS)
    is_folder = not index.place.startswith("http")
    assert all((key in index.info()) is is_folder for key in KEYS)
