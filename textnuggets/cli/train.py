"""textnuggets train: train a model from a recipe."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def train(
    recipe: Annotated[str, typer.Argument(help="TOML file, or name of a shipped recipe.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder of the run.")],
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Override a key of the recipe, such as optimizer.lr=1e-4. Can be repeated."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the run in the output folder from its newest checkpoint.")
    ] = False,
) -> None:
    """Train a nugget model from a recipe."""
    from textnuggets.train.recipe_io import find_recipe, read_recipe

    settings = read_recipe(find_recipe(recipe), changes or [])

    from textnuggets.cli.options import quiet_transformers

    quiet_transformers()

    from textnuggets.train.run import train as run

    try:
        best = run(settings, out, resume)
    except KeyboardInterrupt:
        print("interrupted: continue with --resume.", file=sys.stderr)
        raise typer.Exit(130) from None
    if os.environ.get("RANK", "0") == "0":  # one of several processes
        print(f"best model: {best}", file=sys.stderr)
