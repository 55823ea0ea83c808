"""textnuggets search: what an index holds about a query, and where."""

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

STRETCHES = 3  # of a document are shown, those that answer best
CHARACTERS = 300  # of a stretch


def search(
    index: Annotated[str, typer.Argument(help="Folder of the index, or http://host:6333/collection.")],
    query: Annotated[str, typer.Argument(help="Any text.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many documents.")] = 10,
    filter: Annotated[
        list[str] | None,
        typer.Option(help="Metadata they must have, as key=value; all of them, if repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines, one a document.")] = False,
    model: Annotated[
        str | None, typer.Option("--model", help="Where the index's model is now, if it was moved.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="QDRANT_API_KEY", help="For a server.")
    ] = None,
) -> None:
    """Find the documents that answer a query, with the stretches that do."""
    wanted: dict[str, list[str]] = {}
    for key, value in map(_pair, filter or []):
        wanted.setdefault(key, []).append(value)

    started = time.monotonic()

    from textnuggets.cli.options import load_model, quiet_transformers
    from textnuggets.search.index import NuggetIndex

    quiet_transformers()
    loaded = None if model is None else load_model(model)
    with NuggetIndex.open(index, loaded, api_key) as opened:
        _ = opened.model  # loaded at first use: before the clock of the search starts
        ready = time.monotonic()
        hits = opened.search(query, k, wanted)
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
    for place, hit in enumerate(hits, 1):
        console.print(to_text(place, hit, colours=console.is_terminal))


def _pair(item: str) -> tuple[str, str]:
    key, equals, value = item.partition("=")
    if not key or not equals:
        raise InputError(f"--filter {item}: write it as key=value.")
    return key, value


def to_text(place: int, hit: Hit, colours: bool) -> Text:
    """A document, its score and the stretches that answered; in [brackets] where there are no colours."""
    from rich.text import Text

    shown = Text()
    shown.append(f"{place}. {hit.id}", "bold")
    shown.append(f"  {hit.score:.4f}")
    if hit.metadata:
        shown.append(f"  {json.dumps(hit.metadata, ensure_ascii=False)}", "dim")
    if hit.text is None:
        best = sorted({match.document for match in hit.matches})
        shown.append("\n   characters " + ", ".join(f"{start}-{end}" for start, end in best), "dim")
        return shown
    if hit.regenerated:
        shown.append("\n   regenerated from the vectors: ", "dim")
        shown.append(hit.text)
        return shown
    strongest = sorted(hit.matches, key=lambda match: -match.score)
    spans = list(dict.fromkeys(match.document for match in strongest))[:STRETCHES]
    for start, end in sorted(spans):
        stretch = " ".join(hit.text[start:end].split())[:CHARACTERS]
        before = " ".join(hit.text[max(0, start - 60) : start].split())
        shown.append(f"\n   {'...' if start > 60 else ''}{before} ")
        shown.append(stretch if colours else f"[{stretch}]", "black on #99ff99" if colours else "")
    return shown
