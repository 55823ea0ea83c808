"""Damaged files of a run: a resumed run drops them and says so, or names them."""

from __future__ import annotations

import json

import pytest

from textnuggets.errors import CheckpointError
from textnuggets.train import checkpoints
from textnuggets.train.callbacks import Report

DAMAGED = [
    b"3",
    b"[1]",
    b'"x"',
    b"null",
    b"{}",
    b'{"step": "x"}',
    b'{"step": 1, "lo',
    b"\xff\xfe",
    b'{"step": []}',
]


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_of_metrics_is_dropped_and_reported(tmp_path, capsys, line):
    report = Report(tmp_path, 12)
    whole = [json.dumps({"step": step, "loss": 1.0}).encode() for step in (1, 2, 3)]
    report.metrics.write_bytes(b"\n".join([whole[0], line, *whole[1:]]))
    report.forget_after(2)
    assert report.metrics.read_bytes() == b"\n".join(whole[:2]) + b"\n"
    assert capsys.readouterr().err == f"train: {report.metrics}: 1 damaged lines were dropped\n"


@pytest.mark.parametrize("content", [b"", b"[]", b"3", b"{", b"\xff", b'{"a": 1}', b"[" * 9999])
def test_a_damaged_manifest_is_named(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"manifest\.json is damaged|a is missing"):
        checkpoints.check_manifest(tmp_path)
