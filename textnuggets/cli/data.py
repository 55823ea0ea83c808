"""textnuggets data: tasks of similarity made from texts, with the paper's recipes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from textnuggets.errors import InputError

app = typer.Typer(rich_markup_mode=None)

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for docs.txt, task.jsonl and about.json.")]
Count = Annotated[int | None, typer.Option(min=1, help="How many questions at most.")]
Seed = Annotated[int, typer.Option(min=0, help="What is drawn at random.")]


@app.callback()
def _root() -> None:
    """Make tasks to evaluate similarity with."""


@app.command()
def reranking(
    articles: Annotated[list[str], typer.Argument(help="Corpora of articles: records with 'sections'.")],
    out: Out,
    count: Count = None,
    seed: Seed = 0,
) -> None:
    """Leads of articles, a section of the same article, and 19 that BM25 takes for it."""
    _check(out)

    from textnuggets.evaluate.task_builders import build_reranking

    _write(out, build_reranking(articles, count, seed), "reranking", articles, seed)


@app.command()
def paraphrase(
    pairs: Annotated[list[str], typer.Argument(help="Sentence pairs: .tsv, or .jsonl with 'pairs'.")],
    out: Out,
    count: Count = None,
    max_words: Annotated[int, typer.Option(min=8, help="The most words of a document.")] = 256,
    seed: Seed = 0,
) -> None:
    """Documents of sentences, their paraphrases with other sentences left out, and 19 that BM25 takes for them."""
    _check(out)

    from textnuggets.evaluate.task_builders import build_paraphrase

    _write(out, build_paraphrase(pairs, count, max_words, seed), "paraphrase", pairs, seed)


def _check(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: name a folder.")


def _write(out: Path, questions: list[Any], recipe: str, sources: list[str], seed: int) -> None:
    from textnuggets.evaluate.provenance import describe_source
    from textnuggets.evaluate.task_builders import write_task

    data = [describe_source(source) for source in sources]
    write_task(out, questions, {"recipe": recipe, "seed": seed, "data": data})
    print(f"{out}: {len(questions):,} questions", file=sys.stderr)
