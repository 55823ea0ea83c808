"""Shards on a Ray cluster of two workers: the same bytes as in one process, even if a worker dies."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import psutil
import pytest

from tests.tiny import CORPUS
from textnuggets.bulk.shards import Settings, encode_shards, find_shards

pytest.importorskip("ray")
NAMES = [f"part-{number}.parquet" for number in range(6)]


def encode_with_ray(shards, out, model, *more):
    arguments = [str(shards), "-o", str(out), "--model", model, "--engine", "ray", "--workers", "2", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "textnuggets", "encode", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def workers_of(process):
    below = psutil.Process(process.pid).children(recursive=True)
    return [child for child in below if any("ShardEncoder" in part for part in child.cmdline())]


def test_a_killed_worker_loses_nothing_and_bad_lines_are_reported(tmp_path, copier_folder):
    shards = tmp_path / "shards"
    shards.mkdir()
    for number in range(6):
        lines = [json.dumps({"id": f"{number}-{i}", "text": CORPUS[i % 5] * 3}) for i in range(200)]
        lines += ["no JSON"] if number == 4 else []
        (shards / f"part-{number}.jsonl").write_text("\n".join(lines) + "\n")
    encode_shards(find_shards(str(shards)), tmp_path / "alone", Settings(copier_folder, skip_bad=True))

    process = encode_with_ray(shards, tmp_path / "out", copier_folder, "--skip-bad")
    while not list((tmp_path / "out").glob("part-*.parquet")) and process.poll() is None:
        time.sleep(0.02)
    victims = workers_of(process)
    assert victims, process.stderr.read()
    victims[0].kill()
    _, err = process.communicate(timeout=300)

    assert process.returncode == 0, err
    assert "part-4.jsonl, line 201: not JSON" in err
    for name in NAMES:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
