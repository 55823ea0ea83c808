"""Interrupted runs: resumed with the same losses, whatever was damaged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch

import textnuggets
from tests.train.setting import command, losses, read_metrics, run_command
from textnuggets.errors import ConfigError, InputError
from textnuggets.train import checkpoints
from textnuggets.train.recipe_io import read_recipe
from textnuggets.train.run import train


def test_a_killed_run_resumes_with_the_same_losses(recipe, unbroken, tmp_path):
    out = tmp_path / "run"
    killed = subprocess.Popen(
        command(recipe, "--out", out), stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    deadline = time.monotonic() + 120
    while not (out / "checkpoint-3").is_dir() and killed.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    killed.kill()
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert max(losses(out)) < 12
    resumed = run_command(recipe, "--out", out, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming from" in resumed.stderr
    assert losses(out) == losses(unbroken)
    whole, parts = (torch.load(r / "checkpoint-12" / "optimizer.pt") for r in (unbroken, out))
    for name, state in whole["state"].items():
        torch.testing.assert_close(state["exp_avg"], parts["state"][name]["exp_avg"], rtol=0, atol=0)


def test_resuming_a_finished_run_changes_nothing(recipe, tmp_path, monkeypatch, capsys):
    changes = ["optimizer.steps=3", "report.evaluate_every=3"]
    train(read_recipe(recipe, changes), tmp_path / "run")
    before = (tmp_path / "run" / "metrics.jsonl").read_text()
    with monkeypatch.context() as patched:
        patched.setattr("textnuggets.train.run.build_model", lambda _: pytest.fail("built again"))
        assert train(read_recipe(recipe, changes), tmp_path / "run", resume=True) == tmp_path / "run" / "best"
    assert "already finished at step 3" in capsys.readouterr().err
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == before
    train(read_recipe(recipe, ["optimizer.steps=6", *changes[1:]]), tmp_path / "run", resume=True)
    assert max(losses(tmp_path / "run")) == 6


def test_an_interrupted_run_finishes_its_step_and_saves_a_checkpoint(recipe, tmp_path):
    out = tmp_path / "run"
    running = subprocess.Popen(
        command(recipe, "--out", out, "--set", "optimizer.steps=100000"),
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 120
    while not (out / "metrics.jsonl").is_file() and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert "continue with --resume" in said
    newest = checkpoints.find_checkpoints(out)[0]
    checkpoints.check_manifest(newest)
    assert checkpoints.step_of(newest) == max(losses(out))


@pytest.mark.parametrize("damage", ["cut", "changed", "missing", "unfinished"])
def test_a_damaged_checkpoint_is_reported_and_the_previous_one_is_used(
    recipe, unbroken, tmp_path, capsys, damage
):
    out = tmp_path / "run"
    train(read_recipe(recipe, ["optimizer.steps=6"]), out)
    newest = out / "checkpoint-6"
    weights = newest / "model.safetensors"
    if damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif damage == "changed":
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
    elif damage == "missing":
        (newest / "optimizer.pt").unlink()
    else:
        (newest / "manifest.json").unlink()
    capsys.readouterr()
    train(read_recipe(recipe), out, resume=True)
    said = capsys.readouterr().err
    assert "checkpoint-6" in said
    assert "Skipping this checkpoint." in said
    assert (out / "broken-checkpoint-6").is_dir()
    assert "resuming from" in said
    assert "checkpoint-3" in said
    # The losses differ: with a linear schedule, the first 6 steps had the learning rates of a run of 6 steps.
    assert set(losses(out)) == set(losses(unbroken))


def test_a_full_disk_is_reported_and_does_not_stop_the_run(recipe, tmp_path, capsys, monkeypatch):
    real, calls = textnuggets.NuggetModel.save_pretrained, []

    def full(self, path, **options):
        calls.append(path)
        if len(calls) == 2:  # the first is the checkpoint of step 3
            (Path(path) / "model.safetensors").write_bytes(b"half")
            raise OSError(28, "No space left on device")
        real(self, path, **options)

    monkeypatch.setattr(textnuggets.NuggetModel, "save_pretrained", full)
    train(read_recipe(recipe, ["report.evaluate_every=12"]), tmp_path / "run")
    said = capsys.readouterr().err
    assert "the checkpoint of step 6 could not be written ([Errno 28] No space left on device)" in said
    assert losses(tmp_path / "run").keys() == set(range(1, 13))
    assert [path.name for path in checkpoints.find_checkpoints(tmp_path / "run")] == [
        "checkpoint-12",
        "checkpoint-9",
    ]
    assert not (tmp_path / "run" / ".unfinished").exists()


def test_a_run_is_neither_overwritten_nor_resumed_with_other_settings(recipe, unbroken, tmp_path):
    with pytest.raises(InputError, match="already contains a run"):
        train(read_recipe(recipe), unbroken)
    with pytest.raises(InputError, match="contains no run to resume"):
        train(read_recipe(recipe), tmp_path / "none", resume=True)
    with pytest.raises(
        ConfigError, match=r"was started with optimizer.lr = 0.001 and cannot be resumed with 0.1"
    ):
        train(read_recipe(recipe, ["optimizer.lr=0.1"]), unbroken, resume=True)


def test_metrics_of_repeated_steps_are_written_once(recipe, tmp_path):
    out = tmp_path / "run"
    train(read_recipe(recipe, ["optimizer.steps=6"]), out)
    with (out / "metrics.jsonl").open("a") as lines:
        lines.write(json.dumps({"step": 7, "loss": 1.0}) + '\n{"step": 8, "lo')
    train(read_recipe(recipe), out, resume=True)
    steps = [record["step"] for record in read_metrics(out) if "loss" in record]
    assert steps == list(range(1, 13))
