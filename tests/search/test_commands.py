"""The commands `index` and `search`, and what a killed build leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.tiny import CORPUS
from textnuggets import NuggetIndex

# Texts of these tests have characters that the tiny tokenizer does not know.
pytestmark = pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")


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
    first, name, score = found.stdout.splitlines()[0].split()
    assert (first, name) == ("1.", "a/cat.txt")
    assert 0.97 < float(score) <= 1
    assert CORPUS[0] in found.stdout
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
            "was created with dtype = 'int4'",
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
        def dying(self, make, durable):
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
