"""Reproduction plans: training runs and evaluations from one command, with a report page at the end.

A plan is a TOML file. Its steps are run in order, each in its own process. Finished steps are skipped, and an
interrupted training run is resumed.

    [[train]]
    name = "nuggets-0.1"
    recipe = "paper-autoencode"
    set = ["model.ratio=0.1"]

    [[run]]
    name = "nuggets-0.1/reconstruction"
    command = ["evaluate", "reconstruction", "{nuggets-0.1}", "dev.jsonl", "--out", "{results}/nuggets-0.1"]

`{NAME}` is replaced by the best checkpoint of a training run, `{results}` by the folder of results.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textnuggets.errors import ConfigError, InputError
from textnuggets.io.disk import make_folder
from textnuggets.io.files import find_named, read_toml, replacing
from textnuggets.io.locks import writing

SHIPPED = Path(__file__).parent.parent / "plans"
NAME = re.compile(r"[\w.-]+(/[\w.-]+)*")
PLACE = re.compile(r"\{([\w./-]+)\}")


@dataclass(frozen=True)
class Step:
    """A step of a plan: one run of the command line."""

    name: str
    arguments: tuple[str, ...]
    """Arguments of `textnuggets`."""
    is_training: bool = False


def find_plan(name: str) -> Path:
    """Return the file of a plan, given as a path or as the name of a shipped plan."""
    return find_named(name, SHIPPED, "plan")


def read_plan(path: Path, out: Path, settings: Sequence[str] = ()) -> list[Step]:
    """Read the steps of a plan; raise ConfigError if any of them is invalid.

    Args:
        path: TOML file.
        out: Folder for runs and results.
        settings: Changes to every recipe, such as `optimizer.steps=100`.
    """
    tables = read_toml(path)
    if unknown := sorted(tables.keys() - {"train", "run"}):
        raise ConfigError(f"{path}: unknown table {unknown[0]!r}; a plan has 'train' and 'run'.")
    places = {"results": str(out / "results")}
    steps: list[Step] = []
    for table in _steps(path, tables, "train"):
        name, recipe, changes = _fields(path, table, {"name": str, "recipe": str, "set": list})
        if name in places:
            raise ConfigError(f"{path}: a training run cannot have the name {name!r}: choose another.")
        options = [part for change in [*changes, *settings] for part in ("--set", change)]
        folder = out / "runs" / name
        arguments = ["train", recipe, *options, "--out", str(folder)]
        steps.append(Step(name, tuple(_fill(path, part, places) for part in arguments), is_training=True))
        places[name] = str(folder / "best")
    for table in _steps(path, tables, "run"):
        name, command = _fields(path, table, {"name": str, "command": list})
        if not command:
            raise ConfigError(f"{path}: the step {name!r} has no command.")
        steps.append(Step(name, tuple(_fill(path, part, places) for part in command)))
    names = [step.name for step in steps]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"{path}: two steps have the name {min(twice)!r}.")
    if not steps:
        raise ConfigError(f"{path}: the plan has no steps.")
    return steps


def _steps(path: Path, tables: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the tables of steps under a key."""
    steps = tables.get(key, [])
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise ConfigError(f"{path}: {key!r} must be tables: write [[{key}]] before each step.")
    return steps


def _fields(path: Path, table: dict[str, Any], kinds: dict[str, type]) -> list[Any]:
    """Return the values of a table, checked by type; lists are optional, and of strings."""
    if unknown := sorted(table.keys() - kinds.keys()):
        raise ConfigError(f"{path}: unknown key {unknown[0]!r}; a step has {', '.join(kinds)}.")
    found = []
    for key, kind in kinds.items():
        value: Any = table.get(key, [] if kind is list else None)
        is_right = isinstance(value, kind)
        if not is_right:
            raise ConfigError(f"{path}: {key} of a step must be a {kind.__name__}, got {value!r}.")
        for text in [value] if kind is str else value:
            if not isinstance(text, str) or "\0" in text:
                raise ConfigError(f"{path}: {key} of a step must hold strings, got {text!r}.")
        if key == "name" and not (NAME.fullmatch(value) and {".", ".."}.isdisjoint(value.split("/"))):
            raise ConfigError(
                f"{path}: the name {value!r} of a step is not made of letters, digits, '.', '-', '_' and '/'."
            )
        found.append(value)
    return found


def _fill(path: Path, text: str, places: dict[str, str]) -> str:
    def place(found: re.Match[str]) -> str:
        if found[1] not in places:
            raise ConfigError(f"{path}: {found[0]} is not the name of an earlier training run.")
        return places[found[1]]

    return PLACE.sub(place, text)


def carry_out(steps: Sequence[Step], out: Path) -> Path:
    """Run the unfinished steps of a plan, write the report page, and return its path."""
    make_folder(out / "done")
    with writing(out):
        _run_steps(steps, out)
        return _write_report(out)


def _run_steps(steps: Sequence[Step], out: Path) -> None:
    done = out / "done"
    for number, step in enumerate(steps, 1):
        mark = done / step.name.replace("/", "~")
        arguments_text = "\n".join(step.arguments)
        if mark.is_file():
            if mark.read_text(encoding="utf-8", errors="replace") != arguments_text:
                raise InputError(
                    f"{out}: {step.name!r} was run with other arguments: name another folder, or delete {mark}."
                )
            continue
        print(
            f"{number}/{len(steps)} {step.name}: textnuggets {' '.join(step.arguments)}",
            file=sys.stderr,
            flush=True,
        )
        arguments = list(step.arguments)
        if step.is_training and (out / "runs" / step.name / "recipe.toml").is_file():
            arguments.append("--resume")
        finished = subprocess.run(
            [sys.executable, "-m", "textnuggets", *arguments],
            check=False,
            stdout=subprocess.DEVNULL,
            env={**os.environ},
        )
        if finished.returncode:
            raise InputError(f"{step.name} failed, see above; run the same command again to resume.")
        with replacing(mark) as temporary:
            temporary.write_text(arguments_text, encoding="utf-8")


def _write_report(out: Path) -> Path:
    from textnuggets.report.page import make_report

    page = out / "report.html"
    content = make_report(out / "results")
    with replacing(page) as temporary:
        temporary.write_text(content, encoding="utf-8")
    return page
