"""Checkpoints of a run that are whole or not there, and known to be.

DIR/recipe.toml          what was asked for, every key spelled out
DIR/metrics.jsonl        one object a line, by step
DIR/tensorboard/         the same for TensorBoard
DIR/checkpoint-500/      weights, optimizer, random states; `manifest.json` lists every file with its hash
DIR/best/                the nugget model with the lowest dev loss: `textnuggets.load("DIR/best")`
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from textnuggets.errors import CheckpointError
from textnuggets.io.files import describe

MANIFEST = "manifest.json"
PREFIX = "checkpoint-"


def write_manifest(folder: Path) -> None:
    """List every file of a checkpoint, the last thing written into it."""
    files = {
        str(file.relative_to(folder)): describe(file)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != MANIFEST
    }
    (folder / MANIFEST).write_text(json.dumps(files, indent=1), encoding="utf-8")


def check_manifest(folder: Path) -> None:
    """Whether a checkpoint is as it was written, or a CheckpointError that names the file."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} was not finished: it has no {MANIFEST}.") from error
    except ValueError as error:
        raise CheckpointError(f"{folder}: {MANIFEST} is damaged.") from error
    for name, description in files.items():
        file = folder / name
        if not file.is_file():
            raise CheckpointError(f"{file} is missing.")
        if describe(file) != description:
            raise CheckpointError(f"{file} is damaged: it is not what was written.")


def find_checkpoints(out: Path) -> list[Path]:
    """The checkpoints of a run, newest first."""
    found = [path for path in out.glob(f"{PREFIX}*") if path.name.removeprefix(PREFIX).isdigit()]
    return sorted(found, key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    """The step a checkpoint was written at."""
    return int(checkpoint.name.removeprefix(PREFIX))


def newest_whole(out: Path, report: Callable[[str], None]) -> Path | None:
    """The newest checkpoint that is whole; `report` is told of those passed over."""
    for checkpoint in find_checkpoints(out):
        try:
            check_manifest(checkpoint)
        except CheckpointError as error:
            report(f"{error} It is passed over.")
        else:
            return checkpoint
    return None


def set_aside(out: Path, after: int) -> None:
    """Rename the checkpoints of later steps, which a resumed run takes again: `broken-checkpoint-N`."""
    for checkpoint in find_checkpoints(out):
        if step_of(checkpoint) > after:
            aside = checkpoint.with_name(f"broken-{checkpoint.name}")
            shutil.rmtree(aside, ignore_errors=True)
            checkpoint.rename(aside)


def rotate(out: Path, keep: int) -> None:
    """Delete all but the newest checkpoints."""
    for checkpoint in find_checkpoints(out)[keep:]:
        shutil.rmtree(checkpoint, ignore_errors=True)
