"""textnuggets data: build similarity tasks from texts with the recipes of the paper."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from textnuggets.cli.options import LARGEST, LARGEST_SEED, check_folder

app = typer.Typer(rich_markup_mode=None)

FILES = ("docs.txt", "task.jsonl", "about.json")
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for docs.txt, task.jsonl and about.json.")]
Count = Annotated[int | None, typer.Option(min=1, max=LARGEST, help="Maximum number of questions.")]
Seed = Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of all random choices.")]


@app.callback()
def _root() -> None:
    """Build tasks for 'evaluate similarity'."""


@app.command()
def reranking(
    articles: Annotated[
        list[str], typer.Argument(help="Corpora of articles, whose records have 'sections'.")
    ],
    out: Out,
    count: Count = None,
    seed: Seed = 0,
) -> None:
    """Build a task of article leads, each with a section of the same article and 19 negatives by BM25."""
    check_folder(out, FILES, articles)

    from textnuggets.evaluate.task_builders import build_reranking

    _write(out, build_reranking(articles, count, seed), "reranking", articles, seed)


@app.command()
def paraphrase(
    pairs: Annotated[list[str], typer.Argument(help="Sentence pairs: .tsv, or .jsonl with 'pairs'.")],
    out: Out,
    count: Count = None,
    max_words: Annotated[
        int, typer.Option(min=8, max=LARGEST, help="Maximum number of words per document.")
    ] = 256,
    seed: Seed = 0,
) -> None:
    """Build a task of documents, each with its paraphrase and 19 negatives by BM25."""
    check_folder(out, FILES, pairs)

    from textnuggets.evaluate.task_builders import build_paraphrase

    _write(out, build_paraphrase(pairs, count, max_words, seed), "paraphrase", pairs, seed)


def _write(out: Path, questions: list[Any], recipe: str, sources: list[str], seed: int) -> None:
    from textnuggets.evaluate.provenance import describe_source
    from textnuggets.evaluate.task_builders import write_task

    data = [describe_source(source) for source in sources]
    write_task(out, questions, {"recipe": recipe, "seed": seed, "data": data})
    print(f"{out}: {len(questions):,} questions", file=sys.stderr)
