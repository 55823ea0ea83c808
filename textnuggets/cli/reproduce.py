"""textnuggets reproduce: run a plan of training runs and evaluations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from textnuggets.cli.options import check_folder


def reproduce(
    plan: Annotated[
        str,
        typer.Argument(help="A .toml file, or 'paper' (GPUs, WMT19), 'small' or 'lm' (two cores, hours)."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs, results and report.html.")],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key of every recipe, as key=value; can be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the commands.")] = False,
) -> None:
    """Run the training runs and evaluations of a plan, and write a report; run it again to resume."""
    from textnuggets.report.reproduce import carry_out, find_plan, read_plan

    path = find_plan(plan)
    check_folder(out, ["report.html"], [path])
    steps = read_plan(path, out, changes or ())
    if dry_run:
        for step in steps:
            print("textnuggets", *step.arguments)
        return
    print(carry_out(steps, out), file=sys.stderr)
