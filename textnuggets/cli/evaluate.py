"""textnuggets evaluate: the questions the paper asks of a model, one subcommand each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from textnuggets.errors import InputError

app = typer.Typer(help="Measure what a model's nuggets keep.", rich_markup_mode=None)


@app.callback()
def _root() -> None:
    """Measure what a model's nuggets keep."""


@app.command()
def reconstruction(
    model: Annotated[str, typer.Argument(help="Folder or hub id of a nugget model, or 'default'.")],
    data: Annotated[list[str], typer.Argument(help="Corpora, as 'train' reads them.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for reconstruction.json and .md.")],
    ratios: Annotated[str, typer.Option(help="Compression ratios.")] = "0.05,0.1,0.15,0.25,0.5",
    beams: Annotated[int, typer.Option(min=1, help="Beam width; the paper's is 5.")] = 5,
    documents: Annotated[int, typer.Option(min=1, help="How many are drawn.")] = 200,
    max_tokens: Annotated[int, typer.Option(min=8, help="Their length at most.")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="Decides which are drawn.")] = 0,
) -> None:
    """BLEU, exact match and token accuracy of texts decoded from their nuggets, by ratio."""
    from textnuggets.config import check_ratio
    from textnuggets.text.corpora import check_source

    try:
        wanted = [check_ratio(float(ratio)) for ratio in ratios.split(",")]
    except ValueError as error:
        raise InputError(f"--ratios {ratios}: write numbers in (0, 1] with commas ({error}).") from error
    for source in data:
        check_source(source)
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: name a folder.")

    from textnuggets.cli.options import load_model

    loaded = load_model(None if model == "default" else model)

    from textnuggets.evaluate.reconstruction import evaluate_reconstruction, to_markdown
    from textnuggets.evaluate.results import write_results
    from textnuggets.files import replacing

    results = evaluate_reconstruction(loaded, data, wanted, beams, documents, max_tokens, seed)
    out.mkdir(parents=True, exist_ok=True)
    write_results(out / "reconstruction.json", results)
    with replacing(out / "reconstruction.md") as temporary:
        temporary.write_text(to_markdown(results), encoding="utf-8")
    print(to_markdown(results), end="")
    print(f"{out / 'reconstruction.json'}: {len(wanted)} ratios", file=sys.stderr)
