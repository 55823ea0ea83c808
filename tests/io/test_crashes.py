"""Crashes between any two changes of names, and power loss: old or new state, complete; what is done is on disk."""

from __future__ import annotations

import gc
import json
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from tests.faults import contents, crash_everywhere, recording
from tests.io.test_files import fill, write
from tests.tiny import CORPUS
from tests.train.setting import make_setting
from textnuggets import NuggetIndex
from textnuggets.bulk import encode as bulk
from textnuggets.bulk.encode import encode_to_parquet
from textnuggets.io.documents import Document
from textnuggets.io.folders import recover_folder
from textnuggets.train import checkpoints
from textnuggets.train.callbacks import Report
from textnuggets.train.recipe_io import read_recipe
from textnuggets.train.run import _open_run, train
from textnuggets.train.trainer import NuggetTrainer

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
DOCUMENTS = [Document(f"d{i}", text) for i, text in enumerate(CORPUS[:3])]


def nothing(_: Path) -> None:
    """Prepare nothing."""


# ---------------------------------------------------------------- files and folders


def test_a_file_is_old_or_new_after_a_crash_anywhere(tmp_path):
    def prepare(folder):
        (folder / "file").write_text("old")

    states = []
    for folder in crash_everywhere(prepare, lambda folder: write(folder / "file"), tmp_path):
        states.append((folder / "file").read_text())
        write(folder / "file")
        assert contents(folder) == {"file": "new"}
    assert set(states) == {"old", "new"}


@pytest.mark.parametrize("first", [True, False])
def test_a_folder_is_old_or_new_after_a_crash_anywhere(tmp_path, first):
    old, new = ({"best/a": text, "best/b": text} for text in ("old", "new"))
    if first:
        old = {}
    states = []
    prepare = nothing if first else lambda folder: fill(folder / "best", "old")
    for folder in crash_everywhere(prepare, lambda folder: fill(folder / "best"), tmp_path):
        recover_folder(folder / "best")
        found = {name: text for name, text in contents(folder).items() if not name.startswith(".")}
        assert found in (old, new)
        states.append(found)
        fill(folder / "best")
        assert contents(folder) == new
    assert old in states
    assert new in states


# ---------------------------------------------------------------- training


class Writer(NuggetTrainer):
    """A trainer that writes the folders of a run, without a model."""

    def __init__(self, report, recipe):
        self.report, self.recipe = report, recipe

    def is_world_process_zero(self):
        return True

    def _all(self, fine):
        return fine

    def train_to(self, last, step=0):
        while step < last:
            step += 1
            self.report.write(step, {"other": 1})
            for name in ("best", f"checkpoint-{step}"):
                assert self._write_together(name, name, partial(self.fill, str(step)), self.finish)
            checkpoints.rotate(self.report.out, self.recipe.report.keep)

    def fill(self, text, folder):
        folder.mkdir()
        for name in ("weights", "optimizer"):
            (folder / name).write_text(text)

    def finish(self, folder):
        if folder.name != "best":
            checkpoints.write_manifest(folder)


def test_training_resumes_from_a_complete_checkpoint_after_a_crash_anywhere(tmp_path):
    recipe = read_recipe(make_setting(tmp_path), ["report.keep=1"])

    def prepare(folder):
        (folder / "recipe.toml").write_text(recipe.to_toml())
        Writer(Report(folder, 2), recipe).train_to(1)

    steps = []
    for folder in crash_everywhere(prepare, lambda f: Writer(Report(f, 2), recipe).train_to(2, 1), tmp_path):
        report = Report(folder, 2)
        checkpoint = _open_run(recipe, folder, True, report)
        step = checkpoints.step_of(checkpoint)
        steps.append(step)
        best = {(folder / "best" / name).read_text() for name in ("weights", "optimizer")}
        assert best in ({str(step)}, {str(step + 1)})  # the best model is written before the checkpoint
        Writer(report, recipe).train_to(2, step)
        assert sorted(p.name for p in folder.iterdir()) == [
            "best", "checkpoint-2", "metrics.jsonl", "recipe.toml",
        ]  # fmt: skip
        checkpoints.check_manifest(folder / "checkpoint-2")
        assert contents(folder / "best") == {"weights": "2", "optimizer": "2"}
        metrics = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert metrics == [1, 2]
    assert set(steps) == {1, 2}


def test_a_finished_run_gets_its_best_model_back(tmp_path, capsys):
    recipe = read_recipe(make_setting(tmp_path), ["optimizer.steps=1"])
    out = tmp_path / "run"
    out.mkdir()
    (out / "recipe.toml").write_text(recipe.to_toml())
    Writer(Report(out, 1), recipe).train_to(1)
    (out / "best").rename(out / ".best.old")
    (out / ".unfinished" / "best").mkdir(parents=True)
    assert train(recipe, out, resume=True) == out / "best"
    assert "already finished" in capsys.readouterr().err
    assert (out / "best" / "weights").read_text() == "1"
    assert not [path.name for path in out.iterdir() if path.name.startswith(".")]


# ---------------------------------------------------------------- encode and index


def test_encoding_ends_with_the_same_file_after_a_crash_anywhere(model, tmp_path, monkeypatch):
    monkeypatch.setattr(bulk, "PART_TEXTS", 1)

    def encode(folder, resume=False):
        encode_to_parquet(model, iter(DOCUMENTS), folder / "a.parquet", name="m", resume=resume)

    expected = None
    for folder in crash_everywhere(nothing, encode, tmp_path):
        if (folder / "a.parquet").exists():
            pq.read_table(folder / "a.parquet")
        encode(folder, resume=True)
        assert [path.name for path in folder.iterdir()] == ["a.parquet"]
        table = pq.read_table(folder / "a.parquet")
        expected = table if expected is None else expected
        assert table.equals(expected, check_metadata=True)


def names_of_index(folder):
    return sorted(path.name for path in (folder / "index").iterdir())


def test_an_index_is_created_after_a_crash_anywhere(model, tmp_path):
    def create(folder):
        NuggetIndex.create(folder / "index", model).close()

    for folder in crash_everywhere(nothing, create, tmp_path):
        gc.collect()  # the engine of the crashed writer, which would hold its files in this process
        if NuggetIndex.exists(folder / "index"):
            NuggetIndex.open(folder / "index", model).close()
        else:
            create(folder)
        assert names_of_index(folder) == [".busy", ".lock", "documents", "engine-1", "index.json"]


def test_an_index_is_whole_after_a_crash_anywhere_in_its_compaction(model, tmp_path):
    opened = {}

    def prepare(folder):
        opened[folder] = NuggetIndex.create(folder / "index", model)
        opened[folder].add(["a", "b", "c"], CORPUS[:3])

    engines = set()
    for folder in crash_everywhere(prepare, lambda folder: opened[folder].compact(), tmp_path):
        opened[folder].close()
        with NuggetIndex.open(folder / "index", model) as index:
            engines.add(index.manifest.engine)
            assert [hit.id for hit in index.search(CORPUS[1], k=1)] == ["b"]
        assert names_of_index(folder) == [".busy", ".lock", "documents", index.manifest.engine, "index.json"]
    assert engines == {"engine-1", "engine-2"}


# ---------------------------------------------------------------- power loss


@pytest.mark.parametrize("replace", [write, fill])
def test_a_replaced_file_or_folder_is_on_disk(tmp_path, replace):
    for _ in range(2):
        with recording() as synced:
            replace(tmp_path / "target")
        assert synced.faults == []
        assert synced.missing(tmp_path) == []


def test_parts_and_the_result_of_encode_are_on_disk(model, tmp_path, monkeypatch):
    monkeypatch.setattr(bulk, "PART_TEXTS", 1)
    out, states = tmp_path / "a.parquet", []

    def documents():
        for number, document in enumerate(DOCUMENTS):
            states.append((number, synced.missing(tmp_path)))
            yield document

    with recording() as synced:
        encode_to_parquet(model, documents(), out, name="m")
    assert states[1:] == [(1, []), (2, [])]  # each part, before the next text is read
    assert synced.faults == []
    assert synced.missing(tmp_path) == []


def test_reported_changes_of_an_index_are_on_disk(model, tmp_path):
    with recording() as synced, NuggetIndex.create(tmp_path / "new" / "index", model) as index:
        assert synced.missing(tmp_path, "/wal/") == []
        for step in (
            lambda: index.add(["a", "b"], CORPUS[:2]),
            lambda: index.delete(["a"]),
            index.compact,
        ):
            step()
            assert synced.missing(tmp_path, "/wal/") == []
    assert synced.faults == []


def test_checkpoints_the_best_model_and_metrics_are_on_disk(tmp_path):
    (tmp_path / "setting").mkdir()
    changes = ["optimizer.steps=2", "report.evaluate_every=1", "report.save_every=1", "report.keep=1"]
    recipe = read_recipe(make_setting(tmp_path / "setting"), changes)
    with recording() as synced:
        train(recipe, tmp_path / "runs" / "a")
    assert [line for line in synced.faults if "tensorboard" not in line] == []
    assert synced.missing(tmp_path / "runs", "tensorboard") == []


def test_a_saved_model_is_on_disk(model, tmp_path):
    with recording() as synced:
        model.save_pretrained(tmp_path / "new" / "model")
    assert synced.missing(tmp_path) == []
    assert torch.equal(
        next(model.parameters()), next(type(model).from_pretrained(tmp_path / "new" / "model").parameters())
    )
