"""Closed streams and locales without UTF-8: one line and code 2, or nothing to notice."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.tiny import CORPUS


@pytest.mark.parametrize(
    "arguments",
    [["encode", "-", "-o", "x.parquet"], ["highlight", "-"], ["lm", "generate", "lm", "--prompt", "-"],
     ["index", "-", "-o", "x"]],
)  # fmt: skip
def test_closed_standard_input_is_one_line(run, monkeypatch, tmp_path, arguments):
    monkeypatch.chdir(tmp_path)
    refused = run(*arguments, stdin=None)
    assert refused.returncode == 2
    assert refused.stderr == "error: standard input is closed.\n"
    assert list(tmp_path.iterdir()) == []


def test_closed_output_streams_stop_nothing(tmp_path, copier_folder):
    texts, out = tmp_path / "a.txt", tmp_path / "out.parquet"
    texts.write_text(CORPUS[0])
    command = [sys.executable, "-m", "textnuggets", "encode", texts, "-o", out, "--model", copier_folder]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&- 2>&- <&-', "sh", *map(str, command)], check=False, timeout=300
    )
    assert done.returncode == 0
    assert out.is_file()


def test_a_path_that_the_locale_cannot_express_is_one_line(tmp_path, copier_folder):
    place = tmp_path / "caf\u00e9"
    place.mkdir()
    (place / "a.txt").write_text(CORPUS[0])
    done = subprocess.run(
        [sys.executable, "-m", "textnuggets", "encode", place / "a.txt", "-o", place / "out.parquet",
         "--model", copier_folder],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C", "OMP_NUM_THREADS": "1"},
        timeout=300,
        check=False,
    )  # fmt: skip
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert line.endswith("is not valid Unicode in this locale: set PYTHONUTF8=1, or rename it.")
