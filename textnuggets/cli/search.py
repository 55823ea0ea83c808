"""textnuggets search: find documents of an index, and the passages that match."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textnuggets.cli.options import between
from textnuggets.errors import InputError

if TYPE_CHECKING:
    from rich.text import Text

    from textnuggets.search.results import Hit

MARK = "black on #99ff99"


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
    min_score: Annotated[
        float | None,
        typer.Option(
            callback=between(-1, 1), help="Score that documents must have at least; any by default."
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Print the whole text of each document, with the passages marked."),
    ] = False,
    hybrid: Annotated[
        bool, typer.Option("--hybrid", help="Rank by words, too; needs an index built with --words.")
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Score every document, also if the index has a first stage.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line per document.")] = False,
    model: Annotated[
        str | None, typer.Option("--model", help="New folder of the index's model, if it was moved.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="QDRANT_API_KEY", help="API key of a server.")
    ] = None,
) -> None:
    """Find the documents that match a query best, each with up to three passages and their scores."""
    required: dict[str, list[str]] = {}
    for key, value in map(_pair, filter or []):
        required.setdefault(key, []).append(value)

    started = time.monotonic()

    from textnuggets.cli.options import load_any, quiet_transformers
    from textnuggets.search.index import NuggetIndex

    quiet_transformers()
    loaded = None if model is None else load_any(model)
    with NuggetIndex.open(index, loaded, api_key, read_only=True) as opened:
        _ = opened.model  # loads the model, so that its time is not counted as search
        ready = time.monotonic()
        hits = opened.search(query, k, required, min_score, full, hybrid, exact)
    print(
        f"{ready - started:.1f} s to load {opened.manifest.model!r}, "
        f"{time.monotonic() - ready:.2f} s to search",
        file=sys.stderr,
    )
    if as_json:
        for hit in hits:
            print(json.dumps(_to_json(hit, full), ensure_ascii=False))
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


def _to_json(hit: Hit, full: bool) -> dict[str, Any]:
    """Return a hit as a JSON object, with the whole text if it was asked for."""
    found = asdict(hit)
    for name in ("matches", "passages"):
        found[name] = [item._asdict() for item in getattr(hit, name)]
    if not full:
        del found["text"], found["regenerated"]
    return found


def to_text(rank: int, hit: Hit, colours: bool) -> Text:
    """Return a hit for the terminal: id, score, metadata, and its passages, or its text if it was asked for."""
    from rich.text import Text

    shown = Text()
    shown.append(f"{rank}. {hit.id}", "bold")
    shown.append(f"  {hit.score:.4f}")
    if hit.metadata:
        shown.append(f"  {json.dumps(hit.metadata, ensure_ascii=False)}", "dim")
    if hit.text is not None:
        shown.append("\n   regenerated from the vectors: " if hit.regenerated else "\n", "dim")
        shown.append(hit.text if hit.regenerated else _marked(hit, colours))
        return shown
    for number, passage in enumerate(hit.passages):
        start, end = passage.span
        text = f"characters {start}-{end}" if passage.text is None else " ".join(passage.text.split())
        shown.append(f"\n   {passage.score:.4f}  {text}", "" if number == 0 else "dim")
    return shown


def _marked(hit: Hit, colours: bool) -> Text:
    """Return the text of a hit with its passages marked: in colour, or in [brackets] without colours."""
    from rich.text import Text

    shown, at, text = Text(), 0, hit.text or ""
    for start, end in sorted(passage.span for passage in hit.passages):
        shown.append(text[at:start])
        shown.append(text[start:end] if colours else f"[{text[start:end]}]", MARK if colours else "")
        at = end
    return shown.append(text[at:])
