"""Adding, searching, deleting and compacting, on disk and on a server, and what a killed process leaves."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import CORPUS, tiny_model
from textnuggets import NuggetIndex, maxsim
from textnuggets.errors import CheckpointError, ConfigError, IndexFileError, InputError, TextnuggetsWarning
from textnuggets.search.backends import server
from textnuggets.search.payload import pack_layout, unpack_layout

# Texts of these tests have characters that the tiny tokenizer does not know.
pytestmark = pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")

IDS = [f"doc-{i}" for i in range(5)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny encoder that was saved, so that an index can name it."""
    from textnuggets import load

    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model("bert").save_pretrained(folder)
    return load(folder)


@pytest.fixture(params=["disk", "server"])
def index(request, model, tmp_path, monkeypatch):
    if request.param == "disk":
        made = NuggetIndex.create(tmp_path / "index", model, ratio=0.2)
    else:
        client = server.connect(":memory:")
        monkeypatch.setattr(server, "connect", lambda *_: client)
        made = NuggetIndex.create("http://localhost:6333/nuggets", model, ratio=0.2)
    with made:
        yield made


def test_an_index_finds_what_maxsim_ranks_first(index, model):
    index.add(IDS, CORPUS)
    assert len(index) == 5
    for number, text in enumerate(CORPUS):
        hits = index.search(text, k=5)
        assert hits[0].id == IDS[number]
        expected = np.sort(maxsim(model.encode(text, ratio=0.2), model.encode(CORPUS, ratio=0.2)))[::-1]
        assert [hit.score for hit in hits] == pytest.approx(expected.tolist(), abs=2e-3)  # float16 is stored


def test_queries_have_the_requested_ratio_or_the_models_own(model, tmp_path):
    def ratio_of(name, **settings):
        with NuggetIndex.create(tmp_path / name, model, ratio=0.2, **settings) as made:
            return made.manifest.query_ratio

    assert ratio_of("same") == 0.2
    model.config.query_ratio = 0.5
    try:
        assert ratio_of("own") == 0.5
        assert ratio_of("asked", query_ratio=1.0) == 1.0
        with pytest.raises(ConfigError, match=r"ratio must lie in \(0, 1\], got 0"):
            ratio_of("none", query_ratio=0.0)
        with NuggetIndex.create(tmp_path / "matches", model, ratio=0.2) as made:
            made.add(IDS, CORPUS)
            assert len(made.search(CORPUS[0], k=1)[0].matches) == len(model.encode(CORPUS[0], ratio=0.5))
    finally:
        model.config.query_ratio = None


def test_a_hit_has_the_span_that_matched_each_nugget_of_the_query(index, model):
    index.add(IDS, CORPUS)
    query = CORPUS[1]
    (hit,) = index.search(query, k=1)
    nuggets = model.encode(query, ratio=0.2)
    for match, (start, end) in zip(hit.matches, nuggets.segments.tolist(), strict=True):
        assert match.query == (start, end) or start == end
    # The query is the document: every nugget matches itself.
    for match in hit.matches:
        assert match.document == match.query
        assert match.document[0] < match.document[1]  # also for the first and last token of the text
        assert match.score == pytest.approx(1, abs=2e-3)
    assert hit.text == query
    assert not hit.regenerated


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


def test_metadata_can_be_filtered_by(index):
    years = [
        {"year": 1990 + i, "tag": "even" if i % 2 == 0 else "odd", "ok": i > 2, "x": 0.5 * i}
        for i in range(5)
    ]
    index.add(IDS, CORPUS, years)

    def found(**wanted):
        return sorted(hit.id for hit in index.search(CORPUS[0], k=9, filter=wanted))

    assert found(year=1991) == ["doc-1"]
    assert found(year="1991") == ["doc-1"]
    assert found(tag="even") == ["doc-0", "doc-2", "doc-4"]
    assert found(tag="even", year=1992) == ["doc-2"]
    assert found(ok=True) == found(ok="true") == ["doc-3", "doc-4"]
    assert found(x=1.5) == found(x="1.5") == ["doc-3"]
    assert found(tag="none") == []
    index.add(["list"], ["A list."], [{"a.b": ["x", 2], "c": {"d": 1}, "e": None, "f": 3.0}])
    assert found(**{"a.b": "x"}) == found(**{"a.b": 2}) == found(e="null") == found(f=3) == ["list"]
    assert index.search(CORPUS[3], k=1)[0].metadata == years[3]


def test_deleted_documents_are_not_found(index):
    index.add(IDS, CORPUS)
    assert index.delete(["doc-1", "doc-9"]) == ["doc-9"]
    assert len(index) == 4
    assert "doc-1" not in [hit.id for hit in index.search(CORPUS[1], k=9)]


@pytest.mark.parametrize("query", ["", "  \n ", None])
def test_a_query_of_nothing_is_an_error(index, query):
    with pytest.raises(InputError, match="the query is empty"):
        index.search(query)


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


# -------------------------------------------------------------------- on disk


@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-5), ("float16", 2e-3), ("int8", 3e-2)])
def test_vectors_are_stored_in_the_requested_dtype(model, tmp_path, dtype, error):
    with NuggetIndex.create(tmp_path / "index", model, ratio=0.2, dtype=dtype) as index:
        index.add(IDS, CORPUS)
        assert index.search(CORPUS[0], k=1)[0].score == pytest.approx(1, abs=error)
    with NuggetIndex.open(tmp_path / "index") as index:
        assert index.info()["dtype"] == dtype
        assert [hit.id for hit in index.search(CORPUS[2], k=1)] == ["doc-2"]


def test_an_index_opens_again_with_the_model_it_names(model, tmp_path):
    with NuggetIndex.create(tmp_path / "index", model, ratio=0.2) as index:
        index.add(IDS, CORPUS, [{"n": i} for i in range(5)])
        before = index.search(CORPUS[0])
    with NuggetIndex.open(tmp_path / "index") as index:
        assert index.search(CORPUS[0]) == before


def test_another_model_is_refused_with_both_names(model, tmp_path):
    NuggetIndex.create(tmp_path / "index", model).close()
    other = tiny_model("bert", scorer_layer=2)
    other.config.name_or_path = "other-model"
    with pytest.raises(IndexFileError, match=r"built with .*tiny.*'other-model' has other weights"):
        NuggetIndex.open(tmp_path / "index", other)


def test_text_that_is_not_stored_is_regenerated_and_marked(copier, tmp_path):
    with NuggetIndex.create(tmp_path / "index", copier, store_text=False) as index:
        index.add(IDS, CORPUS)
        (hit,) = index.search(CORPUS[0], k=1)
        assert hit.regenerated
        assert hit.text == CORPUS[0]
    assert CORPUS[0][:20].encode() not in b"".join(f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())


def test_a_regenerated_text_has_its_line_breaks(copier, tmp_path):
    with NuggetIndex.create(tmp_path / "index", copier, store_text=False) as index:
        text = CORPUS[0].replace(", ", ",\n\n\t")
        index.add(["a"], [text])
        (hit,) = index.search(CORPUS[0], k=1)
        assert hit.text == text


def test_adding_many_batches_gives_one_warning(model, tmp_path, monkeypatch):
    monkeypatch.setattr("textnuggets.search.writing.BATCH", 2)
    with NuggetIndex.create(tmp_path / "index", model) as index, pytest.warns(TextnuggetsWarning) as given:
        index.add(["a", "b", "c", "d", "e"], ["the cat 猫"] * 5)
    assert len(given) == 1


def test_a_model_without_a_decoder_regenerates_no_text(model, tmp_path):
    with NuggetIndex.create(tmp_path / "index", model, store_text=False) as index:
        index.add(IDS, CORPUS)
        (hit,) = index.search(CORPUS[0], k=1)
        assert hit.text is None
        assert not hit.regenerated
        assert hit.matches


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
    monkeypatch.setattr("textnuggets.search.backends.edge.BATCH", 2)
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
    (tmp_path / "index" / "engine-7").mkdir()  # what a killed compaction leaves
    with NuggetIndex.open(tmp_path / "index") as index:
        assert len(index) == 6
    assert [p.name for p in (tmp_path / "index").glob("engine-*")] == ["engine-1"]


def test_an_index_in_use_is_not_opened_twice(model, tmp_path):
    # Another process holds the lock; once it is killed, the index can be opened.
    folder = tmp_path / "index"
    NuggetIndex.create(folder, model).close()
    name = str(folder / ".lock")
    code = (
        f"import filelock; lock = filelock.FileLock({name!r}); lock.acquire(); print(1, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1) as other:
        other.stdout.readline()
        with pytest.raises(IndexFileError, match="is open in another process"):
            NuggetIndex.open(folder)
        other.kill()
    NuggetIndex.open(folder).close()


@pytest.mark.parametrize(
    "damage",
    ["no manifest", "other format", "not JSON", "no vectors", "truncated", "no count", "half the ids"],
)
def test_a_damaged_index_is_named(model, tmp_path, damage):
    folder = tmp_path / "index"
    with NuggetIndex.create(folder, model) as index:
        index.add(IDS, CORPUS)
    manifest = folder / "index.json"
    if damage == "no manifest":
        manifest.unlink()
    elif damage == "other format":
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 9}))
    elif damage == "not JSON":
        manifest.write_text("{")
    elif damage == "no vectors":
        shutil.rmtree(folder / "engine-1")
    elif damage == "no count":
        (folder / "documents").unlink()
    elif damage == "half the ids":  # the engine does not notice this without its log
        shutil.rmtree(folder / "engine-1" / "wal")
        for file in (folder / "engine-1").rglob("*mappings"):
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    else:
        for file in (folder / "engine-1").rglob("segment.json"):
            file.write_text("{")
    with pytest.raises(IndexFileError, match="index"):
        NuggetIndex.open(folder)


def test_a_place_that_is_taken_is_not_overwritten(model, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("mine")
    with pytest.raises(IndexFileError, match="already exists"):
        NuggetIndex.create(tmp_path / "there", model)
    with pytest.raises(ConfigError, match="dtype must be one of float32, float16, int8"):
        NuggetIndex.create(tmp_path / "new", model, dtype="float8")
    with pytest.raises(ConfigError, match="http://host:6333/collection"):
        NuggetIndex.create("http://localhost:6333", model)


def test_an_interrupted_creation_can_be_repeated(model, tmp_path):
    (tmp_path / "index" / "engine-1").mkdir(parents=True)
    (tmp_path / "index" / ".lock").touch()
    with NuggetIndex.create(tmp_path / "index", model) as index:
        assert len(index) == 0


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


def test_deleting_and_compacting_need_no_model(tmp_path):
    from textnuggets import load

    tiny_model("bert").save_pretrained(tmp_path / "model")
    with NuggetIndex.create(tmp_path / "index", load(tmp_path / "model")) as index:
        index.add(IDS, CORPUS)
    (tmp_path / "model").rename(tmp_path / "moved")
    with NuggetIndex.open(tmp_path / "index") as index:
        index.delete(["doc-0"])
        index.compact()
        assert index.info()["documents"] == 4
        with pytest.raises(CheckpointError, match="cannot load"):
            index.search("cat")
    with NuggetIndex.open(tmp_path / "index", load(tmp_path / "moved")) as index:
        assert index.search(CORPUS[1], k=1)[0].id == "doc-1"


def test_an_index_is_closed_by_any_thread(model, tmp_path):
    index = NuggetIndex.create(tmp_path / "index", model)
    thread = threading.Thread(target=index.close)
    thread.start()
    thread.join()
    NuggetIndex.open(tmp_path / "index").close()


def test_a_filter_without_a_comparable_value_is_refused(index):
    index.add(IDS[:1], CORPUS[:1])
    for wanted in ({"a": []}, {"a": {"b": 1}}, {"a": "\ud800"}):
        with pytest.raises(InputError, match="filter"):
            index.search("cat", filter=wanted)


def test_a_server_gets_no_more_than_it_takes(model, monkeypatch):
    client = server.connect(":memory:")
    monkeypatch.setattr(server, "connect", lambda *_: client)
    sent = []
    send = server.ServerEngine._send
    monkeypatch.setattr(
        server.ServerEngine, "_send", lambda self, points: sent.append(len(points)) or send(self, points)
    )
    monkeypatch.setattr(server, "REQUEST_NUMBERS", 700)
    with NuggetIndex.create("http://localhost:6333/parts", model) as index:
        index.add(IDS, CORPUS)
        assert len(sent) > 1
        assert sum(sent) == len(index) == 5
        monkeypatch.setattr(server, "MOST_NUMBERS", 10)
        with pytest.raises(InputError, match="document 'x' has"):
            index.add(["x"], ["Text."])


def test_a_collection_opens_again_and_is_compacted_by_its_server(model, monkeypatch):
    client = server.connect(":memory:")
    monkeypatch.setattr(server, "connect", lambda *_: client)
    place = "http://localhost:6333/again"
    assert not NuggetIndex.exists(place)
    with pytest.raises(IndexFileError, match="the server has no such collection"):
        NuggetIndex.open(place)
    with NuggetIndex.create(place, model, ratio=0.2) as index:
        index.add(IDS, CORPUS)
        with pytest.raises(IndexFileError, match="name another collection"):
            NuggetIndex.create(place, model)
        with pytest.raises(ConfigError, match="a server compacts its collections itself"):
            index.compact()
        for given in (model, None):
            again = NuggetIndex.open(place, given)
            assert again.manifest == index.manifest
            assert again.search(CORPUS[2], k=1)[0].id == "doc-2"
        assert again.info()["documents"] == 5
        assert "bytes" not in again.info()
        assert again.reclaimable_bytes == 0
        with pytest.raises(IndexFileError, match="has other weights"):
            NuggetIndex.open(place, tiny_model("bert", scorer_layer=2))


def test_a_layout_comes_back_as_it_was(copier):
    nuggets = copier.encode(" ".join(CORPUS))
    norms = np.linalg.norm(nuggets.vectors, axis=1)
    again = unpack_layout(pack_layout(nuggets, norms), nuggets.vectors / norms[:, None])
    for name in ("scores", "positions", "spans", "windows"):
        assert (getattr(again, name) == getattr(nuggets, name)).all()
    assert np.abs(again.vectors - nuggets.vectors).max() < 1e-5
    assert copier.reconstruct(again, num_beams=1) == copier.reconstruct(nuggets, num_beams=1)
    for broken in ("", "x", pack_layout(nuggets, norms)[:-8]):
        with pytest.raises(IndexFileError, match="damaged"):
            unpack_layout(broken, nuggets.vectors)


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


# -------------------------------------------------------------------- the commands


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder of documents in several file formats."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "a").mkdir()
    (folder / "a" / "cat.txt").write_text(CORPUS[0])
    (folder / "rain.md").write_text(CORPUS[1])
    lines = [{"id": "letter", "text": CORPUS[2], "year": 1999}, {"text": CORPUS[3]}]
    (folder / "more.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "ignored.bin").write_bytes(b"\x00")
    return folder


def test_a_folder_is_indexed_searched_reduced_and_searched_again(run, model, folder, tmp_path):
    place, name = tmp_path / "index", model.config.name_or_path
    built = run("index", folder, "-o", place, "--model", name, "--ratio", "0.2")
    assert built.returncode == 0, built.stderr
    assert "4 documents written, 4 in all" in built.stderr
    again = run("index", folder, "-o", place, "--model", name, "--ratio", "0.2")
    assert "0 documents written, 4 unchanged" in again.stderr
    found = run("search", place, CORPUS[0], "-k", "2")
    assert found.stdout.startswith("1. a/cat.txt  1.0")
    assert "[" in found.stdout
    lines = run("search", place, CORPUS[2], "--filter", "year=1999", "--json").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["letter"]
    assert json.loads(lines[0])["matches"][0]["document"]
    assert json.loads(run("index", "info", place).stdout)["documents"] == 4
    deleted = run("index", "delete", place, "letter", "nobody")
    assert deleted.returncode == 2
    assert "has no document 'nobody'" in deleted.stderr
    (tmp_path / "new.txt").write_text("A new line.\n")
    assert "1 documents written, 4 in all" in run("index", "add", place, tmp_path / "new.txt").stderr
    assert "MB now" in run("index", "compact", place).stderr
    assert "letter" not in run("search", place, CORPUS[2]).stdout


def test_wrong_commands_say_what_is_wrong_in_one_line(run, model, folder, tmp_path):
    place, name = tmp_path / "index", model.config.name_or_path
    run("index", folder, "-o", place, "--model", name)
    for arguments, message in (
        (["index", tmp_path / "none", "-o", place, "--model", name], "unknown file type"),
        (["search", place, "x", "--filter", "year=1", "--filter", "=2"], "write it as key=value"),
        (
            ["index", folder, "-o", place, "--model", name, "--dtype", "int8"],
            "was created with dtype = 'float16'",
        ),
        (["index", folder, "-o", tmp_path / "x", "--model", tmp_path / "none"], "cannot load"),
        (["index", folder], "out"),
        (["index", "info", tmp_path / "nowhere"], "is not an index"),
        (["search", place, " "], "the query is empty"),
        (["search", place, "x", "--filter", "year"], "write it as key=value"),
    ):
        failed = run(*arguments)
        assert failed.returncode == 2, failed.stderr
        assert message in failed.stderr
        assert "Traceback" not in failed.stderr
        assert failed.stderr.strip().count("\n") == 0


KILLED = """
import os
from textnuggets import NuggetIndex
from textnuggets.search.backends.edge import EdgeEngine

puts, put = 0, EdgeEngine.put
def counting(self, documents):
    global puts
    puts += 1
    if puts == {fatal}:
        # The update reaches the engine, and the process is killed before anything is flushed.
        def dying(self, make):
            self._shard.update(make())
            os.kill(os.getpid(), 9)
        type(self)._update = dying
    put(self, documents)
    print(len(documents), flush=True)
EdgeEngine.put = counting
with NuggetIndex.open({place!r}) as index:
    index.add([f"d{{i}}" for i in range(1000)], [{word!r} + f" {{i}}" for i in range(1000)])
"""


@pytest.mark.parametrize("words", [("The cat sat.", "Rain fell."), (None, "Rain fell.")])
def test_a_killed_build_has_all_it_reported_and_resumes(run, model, tmp_path, words):
    """The process is killed within a batch: of new documents, or of documents that replace others."""
    before, now = words
    place = tmp_path / "index"
    with NuggetIndex.create(place, model) as index:
        if before is not None:
            index.add([f"d{i}" for i in range(1000)], [f"{before} {i}" for i in range(1000)])
    code = KILLED.format(place=str(place), fatal=4, word=now)
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    reported = sum(map(int, killed.stdout.split()))
    assert reported == 3 * 128
    with NuggetIndex.open(place) as index:
        assert len(index) >= (reported if before is None else 1000)
        documents = {item.id: item for item in index._backend.engine.documents()}
        for number in range(reported):
            assert documents[f"d{number}"].payload["text"] == f"{now} {number}"
        # Every document is consistent: its vectors belong to its text.
        for item in list(documents.values())[::40]:
            made = model.encode(item.payload["text"], ratio=index.manifest.ratio)
            assert len(item.vectors) == len(made)
            assert (item.vectors * made.vectors).sum() / np.linalg.norm(made.vectors, axis=1).sum() > 0.9
    lines = "".join(json.dumps({"id": f"d{i}", "text": f"{now} {i}"}) + "\n" for i in range(1000))
    (tmp_path / "docs.jsonl").write_text(lines)
    done = run("index", tmp_path / "docs.jsonl", "-o", place, "--model", model.config.name_or_path)
    assert done.returncode == 0, done.stderr
    assert "1,000 in all" in done.stderr
    assert "unchanged" in done.stderr
