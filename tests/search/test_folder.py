"""The folder of an index: creating, opening, locking and damage."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading

import pytest

from tests.search.conftest import IDS
from tests.tiny import CORPUS, tiny_model
from textnuggets import NuggetIndex
from textnuggets.errors import CheckpointError, ConfigError, IndexFileError
from textnuggets.search.backends import folder as files

# Texts of these tests have characters that the tiny tokenizer does not know.
pytestmark = pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")


@pytest.mark.parametrize(
    ("dtype", "error"), [("float32", 1e-5), ("float16", 2e-3), ("int8", 3e-2), ("int4", 0.1)]
)
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
    with pytest.raises(ConfigError, match="dtype must be one of float32, float16, int8, int4"):
        NuggetIndex.create(tmp_path / "new", model, dtype="float8")
    with pytest.raises(ConfigError, match="http://host:6333/collection"):
        NuggetIndex.create("http://localhost:6333", model)


def test_an_interrupted_creation_can_be_repeated(model, tmp_path, monkeypatch):
    folder = tmp_path / "index"
    with monkeypatch.context() as patched:
        patched.setattr(files, "write_count", lambda *_: pytest.fail("interrupted"))
        with pytest.raises(pytest.fail.Exception):
            NuggetIndex.create(folder, model)
    assert (folder / "engine-1").is_dir()
    assert not NuggetIndex.exists(folder)
    with pytest.raises(IndexFileError, match="its creation was interrupted"):
        NuggetIndex.open(folder)
    with NuggetIndex.create(folder, model) as index:
        assert len(index) == 0


# Names that an index uses, too.
@pytest.mark.parametrize(
    "name", ["engine-manuals/motor.txt", "engine-1/motor.txt", "documents", "documents/a.txt", ".lock"]
)
def test_a_folder_that_is_not_an_index_keeps_its_files(run, model, tmp_path, name):
    place = tmp_path / "place"
    (place / name).parent.mkdir(parents=True)
    (place / name).write_text("mine")
    (tmp_path / "docs.txt").write_text("A line.\n")
    failed = run("index", tmp_path / "docs.txt", "-o", place, "--model", model.config.name_or_path)
    assert failed.returncode == 2
    assert "is not empty" in failed.stderr
    assert failed.stderr.count("\n") == 1
    assert [path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()] == [name]
    assert (place / name).read_text() == "mine"


def test_files_of_a_user_in_an_index_are_kept(model, tmp_path):
    place = tmp_path / "index"
    with NuggetIndex.create(place, model) as index:
        index.add(IDS, CORPUS)
        for name in ("engine-manuals", "engine-2", "engine-9"):
            (place / name).mkdir()
            (place / name / "motor.txt").write_text("mine")
        index.compact()
        assert index.manifest.engine == "engine-3"
    with NuggetIndex.open(place) as index:
        index.compact()
    engines = {path.name for path in place.glob("engine-*")}
    assert engines == {"engine-manuals", "engine-2", "engine-9", "engine-4"}
    assert [path.read_text() for path in place.glob("*/motor.txt")] == ["mine"] * 3


def test_an_index_of_the_first_format_is_still_read_and_changed(model, tmp_path):
    place = tmp_path / "index"
    with NuggetIndex.create(place, model, ratio=0.2, dtype="float16", first_stage=False) as index:
        index.add(IDS[:4], CORPUS[:4])
    early = json.loads((place / "index.json").read_text())
    for name in ("digest", "words", "first_stage", "pooled", "decodable"):
        del early[name]
    (place / "index.json").write_text(json.dumps({**early, "format": 1}))
    with NuggetIndex.open(place, model) as index:
        index.add(IDS[4:], CORPUS[4:])
        index.compact()
        assert index.info()["format"] == 1
        assert index.info()["pooled"] is False
        assert [index.search(text, k=1)[0].id for text in CORPUS] == IDS
    assert NuggetIndex.check(place).damage == []
