"""textnuggets search: find documents of an index, and the passages that match."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from textnuggets.errors import InputError

if TYPE_CHECKING:
    from rich.text import Text

    from textnuggets.search.results import Hit

PASSAGES = 3  # passages shown per document
CHARACTERS = 300  # characters shown per passage at most
CONTEXT = 60  # characters shown before a passage


def search(
    index: Annotated[str, typer.Argument(help="Folder of the index, or http://host:6333/collection.")],
    query: Annotated[str, typer.Argument(help="Any text.")],
    k: Annotated[int, typer.Option("-k", min=1, max=10_000, help="Number of documents.")] = 10,
    filter: Annotated[
        list[str] | None,
        typer.Option(
            help="Metadata that documents must have, as key=value; may be repeated. A key that contains = is written as "
            "a JSON string: '\"a=b\"=value'."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line per document.")] = False,
    model: Annotated[
        str | None, typer.Option("--model", help="New folder of the index's model, if it was moved.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="QDRANT_API_KEY", help="API key of a server.")
    ] = None,
) -> None:
    """Find the documents that match a query best, with the passages that match."""
    required: dict[str, list[str]] = {}
    for key, value in map(_pair, filter or []):
        required.setdefault(key, []).append(value)

    started = time.monotonic()

    from textnuggets.cli.options import load_model, quiet_transformers
    from textnuggets.search.index import NuggetIndex

    quiet_transformers()
    loaded = None if model is None else load_model(model)
    with NuggetIndex.open(index, loaded, api_key) as opened:
        _ = opened.model  # loads the model, so that its time is not counted as search
        ready = time.monotonic()
        hits = opened.search(query, k, required)
    print(
        f"{ready - started:.1f} s to import torch and load {opened.manifest.model!r}, "
        f"{time.monotonic() - ready:.2f} s to search",
        file=sys.stderr,
    )
    if as_json:
        for hit in hits:
            print(
                json.dumps(asdict(hit) | {"matches": [m._asdict() for m in hit.matches]}, ensure_ascii=False)
            )
        return
    if not hits:
        print("nothing found.", file=sys.stderr)
        return

    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for rank, hit in enumerate(hits, 1):
        console.print(to_text(rank, hit, colours=console.is_terminal))


def _pair(item: str) -> tuple[str, str]:
    from textnuggets.search.labels import split_label

    try:
        return split_label(item)
    except ValueError as error:
        raise InputError(
            f"--filter {item}: write it as key=value, and a key that contains = or starts with a quote as a JSON string."
        ) from error


def to_text(rank: int, hit: Hit, colours: bool) -> Text:
    """Return a hit for the terminal: id, score and matching passages, in [brackets] without colours."""
    from rich.text import Text

    shown = Text()
    shown.append(f"{rank}. {hit.id}", "bold")
    shown.append(f"  {hit.score:.4f}")
    if hit.metadata:
        shown.append(f"  {json.dumps(hit.metadata, ensure_ascii=False)}", "dim")
    if hit.text is None:
        spans = sorted({match.document for match in hit.matches})
        shown.append("\n   characters " + ", ".join(f"{start}-{end}" for start, end in spans), "dim")
        return shown
    if hit.regenerated:
        shown.append("\n   regenerated from the vectors: ", "dim")
        shown.append(hit.text)
        return shown
    strongest = sorted(hit.matches, key=lambda match: -match.score)
    spans = list(dict.fromkeys(match.document for match in strongest))[:PASSAGES]
    for start, end in sorted(spans):
        passage = " ".join(hit.text[start:end].split())[:CHARACTERS]
        before = " ".join(hit.text[max(0, start - CONTEXT) : start].split())
        shown.append(f"\n   {'...' if start > CONTEXT else ''}{before} ")
        shown.append(passage if colours else f"[{passage}]", "black on #99ff99" if colours else "")
    return shown
