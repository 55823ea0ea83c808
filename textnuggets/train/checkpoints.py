"""Checkpoints of a run, complete and verified by their hashes.

DIR/recipe.toml          the recipe with the values of all keys
DIR/metrics.jsonl        metrics by step, one object per line
DIR/tensorboard/         the same for TensorBoard
DIR/checkpoint-500/      weights, optimizer, random states; `manifest.json` lists every file with its hash
DIR/best/                the nugget model with the lowest dev loss: `textnuggets.load("DIR/best")`
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from textnuggets.errors import CheckpointError
from textnuggets.io.disk import rename
from textnuggets.io.files import describe
from textnuggets.io.folders import remove_folder

MANIFEST = "manifest.json"
PREFIX = "checkpoint-"


def write_manifest(folder: Path) -> None:
    """Write the manifest of a checkpoint, after all its other files."""
    files = {
        str(file.relative_to(folder)): describe(file)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != MANIFEST
    }
    (folder / MANIFEST).write_text(json.dumps(files, indent=1), encoding="utf-8")


def check_manifest(folder: Path) -> None:
    """Raise CheckpointError if a file of a checkpoint is missing or has changed since it was written."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} is incomplete: it has no {MANIFEST}.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder}: {MANIFEST} is damaged.") from error
    if not isinstance(files, dict):
        raise CheckpointError(f"{folder}: {MANIFEST} is damaged.")
    for name, description in files.items():
        file = folder / name
        if not file.is_file():
            raise CheckpointError(f"{file} is missing.")
        if describe(file) != description:
            raise CheckpointError(f"{file} is damaged: its hash differs from {MANIFEST}.")


def find_checkpoints(out: Path) -> list[Path]:
    """Return the checkpoints of a run, newest first."""
    found = [path for path in out.glob(f"{PREFIX}*") if path.name.removeprefix(PREFIX).isdigit()]
    return sorted(found, key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    """Return the step at which a checkpoint was written."""
    return int(checkpoint.name.removeprefix(PREFIX))


def newest_complete(out: Path, report: Callable[[str], None]) -> Path | None:
    """Return the newest complete checkpoint; call `report` with a message about each damaged one."""
    for checkpoint in find_checkpoints(out):
        try:
            check_manifest(checkpoint)
        except CheckpointError as error:
            report(f"{error} Skipping this checkpoint.")
        else:
            return checkpoint
    return None


def set_aside(out: Path, after: int) -> None:
    """Rename checkpoints of later steps, which a resumed run repeats, to `broken-checkpoint-N`."""
    for checkpoint in find_checkpoints(out):
        if step_of(checkpoint) > after:
            aside = checkpoint.with_name(f"broken-{checkpoint.name}")
            remove_folder(aside)
            rename(checkpoint, aside)


def rotate(out: Path, keep: int) -> None:
    """Delete all but the `keep` newest checkpoints."""
    for checkpoint in find_checkpoints(out)[keep:]:
        remove_folder(checkpoint)
