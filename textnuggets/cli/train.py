"""textnuggets train: a recipe into a model."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def train(
    recipe: Annotated[
        str, typer.Argument(help="A TOML file, or the name of one that comes with the package.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.")],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a key of the recipe, as optimizer.lr=1e-4. May be repeated."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in the folder, from its newest checkpoint.")
    ] = False,
) -> None:
    """Train a nugget model as a recipe says."""
    from textnuggets.train.recipe_io import find_recipe, read_recipe

    wanted = read_recipe(find_recipe(recipe), changes or [])

    from textnuggets.cli.options import quiet_transformers

    quiet_transformers()

    from textnuggets.train.run import train as run

    try:
        best = run(wanted, out, resume)
    except KeyboardInterrupt:
        print("interrupted: go on with --resume.", file=sys.stderr)
        raise typer.Exit(130) from None
    if os.environ.get("RANK", "0") == "0":  # of several processes, one speaks
        print(f"the best model is in {best}", file=sys.stderr)
