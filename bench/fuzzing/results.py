"""The result of a command, comparable between two runs: what it printed and the content of its files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from textnuggets.io.hashing import digest_files


def read_result(out: str, outputs: list[Path]) -> list[Any]:
    """Return the values of printed JSON lines and of written files; figures, caches and sizes on disk are left out."""
    # Sizes on disk change with spaces in a file.
    lines = [line for line in out.splitlines() if not line.lstrip().startswith('"bytes')]
    found: list[Any] = [_parsed(line) for line in lines]
    for path in outputs:
        read = READERS.get(path.suffix)
        if read is not None:
            found.append([path.as_posix(), read(path)])
    return found


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _lines(path: Path) -> Any:
    return [_parsed(line) for line in path.read_text(encoding="utf-8").splitlines()]


READERS: dict[str, Callable[[Path], Any]] = {
    ".parquet": lambda path: pq.read_table(path).to_pylist(),
    ".jsonl": _lines,
    ".md": lambda path: path.read_text(encoding="utf-8"),
    ".html": lambda path: path.read_text(encoding="utf-8"),
    ".safetensors": digest_files,
}


def is_finite(value: Any) -> bool:
    """Return whether all numbers are finite."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(is_finite, value.values()))
    if isinstance(value, list):
        return all(map(is_finite, value))
    return True
