"""textnuggets index: build and maintain an index of documents.

`textnuggets index DOCS -o INDEX` builds an index; the other commands take the index as their first argument.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from textnuggets.cli.options import MODEL, SkipBad, check_share
from textnuggets.errors import IndexFileError, InputError

if TYPE_CHECKING:
    from textnuggets.io.documents import Document
    from textnuggets.search.index import NuggetIndex


class BuildByDefault(TyperGroup):
    """Command group in which `index DOCS` means `index build DOCS`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `build` if the first argument is not a command."""
        if args and args[0] not in (*self.commands, "--help"):
            args = ["build", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=BuildByDefault, rich_markup_mode=None)

WORTHWHILE = 1_000_000  # bytes that compacting must free to be worth a rewrite
Place = Annotated[
    str, typer.Argument(metavar="INDEX", help="Folder of the index, or http://host:6333/collection.")
]
Docs = Annotated[
    str,
    typer.Argument(
        help="A folder of .txt, .md, .jsonl or .parquet files, or one file; '-' for standard input. In a folder "
        "a .txt or .md file is one document; a single .txt file has one document per line. Parquet files written by "
        "'encode' are not encoded again."
    ),
]
Key = Annotated[str | None, typer.Option("--api-key", envvar="QDRANT_API_KEY", help="API key of a server.")]


@app.callback()
def _root() -> None:
    """Build an index of documents (textnuggets index DOCS -o INDEX) and maintain it."""


@app.command()
def build(
    docs: Docs,
    out: Annotated[
        str, typer.Option("--out", "-o", help="Folder of the index, or http://host:6333/collection.")
    ],
    model: Annotated[
        str | None,
        typer.Option("--model", help=f"{MODEL}; 'search' by default."),
    ] = None,
    ratio: Annotated[
        float | None,
        typer.Option(callback=check_share, help="Compression ratio of documents; the model's by default."),
    ] = None,
    query_ratio: Annotated[
        float | None,
        typer.Option(callback=check_share, help="Compression ratio of queries; the model's by default."),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Data type of the stored vectors: float32, float16, int8 or int4; by default int4, or float16 if the model has a decoder."
        ),
    ] = None,
    store_text: Annotated[
        bool, typer.Option("--store-text/--no-store-text", help="Whether to store texts with the vectors.")
    ] = True,
    words: Annotated[
        bool, typer.Option("--words/--no-words", help="Whether to store words for 'search --hybrid'.")
    ] = False,
    first_stage: Annotated[
        bool | None,
        typer.Option(
            "--first-stage/--no-first-stage",
            help="Whether searches score only the best candidates of a first stage; by default from 100,000 documents on.",
        ),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(
            min=1, max=10_000, help="Parts of a new collection on a cluster; its default if not given."
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Copies of each part; the cluster's default if not given."),
    ] = None,
    skip_bad: SkipBad = False,
    api_key: Key = None,
) -> None:
    """Index documents. If interrupted, the same command resumes."""
    source = _read(docs, skip_bad)

    from textnuggets.cli.options import load_any
    from textnuggets.model.fingerprint import lasting_name
    from textnuggets.search.index import NuggetIndex

    loaded = load_any(model)
    if NuggetIndex.exists(out, api_key):
        index = NuggetIndex.open(out, loaded, api_key)
        _check_settings(
            index,
            ratio=ratio,
            query_ratio=query_ratio,
            dtype=dtype,
            store_text=store_text,
            words=words,
            first_stage=first_stage,
        )
    else:
        index = NuggetIndex.create(
            out,
            loaded,
            ratio,
            query_ratio,
            dtype,
            store_text,
            lasting_name(model),
            api_key,
            words,
            first_stage,
            shards,
            replicas,
        )
    with index:
        _add(index, source, skip_bad)


@app.command()
def add(
    index: Place,
    docs: Docs,
    model: Annotated[
        str | None, typer.Option("--model", help="New folder of the index's model, if it was moved.")
    ] = None,
    skip_bad: SkipBad = False,
    api_key: Key = None,
) -> None:
    """Add documents, replacing those with the same ids."""
    source = _read(docs, skip_bad)
    with _open(index, api_key, model) as opened:
        _add(opened, source, skip_bad)


@app.command()
def delete(
    index: Place,
    ids: Annotated[list[str], typer.Argument(help="Ids of the documents to delete.")],
    api_key: Key = None,
) -> None:
    """Delete documents; 'compact' then removes them from the disk."""
    with _open(index, api_key) as opened:
        unknown = opened.delete(ids)
        print(f"{index}: {len(ids) - len(unknown):,} deleted, {len(opened):,} left", file=sys.stderr)
    if unknown:
        raise InputError(f"{index} has no document {', '.join(map(repr, unknown))}.")


@app.command()
def compact(index: Place, api_key: Key = None) -> None:
    """Rewrite the index without deleted and replaced documents."""
    with _open(index, api_key) as opened:
        before = opened.info().get("bytes", 0)
        opened.compact(show_progress_bar=True)
        after = opened.info().get("bytes", 0)
    print(f"{index}: {before / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB now", file=sys.stderr)


@app.command()
def check(index: Place, api_key: Key = None) -> None:
    """Look for damage: compare all files with their checksums, and read every document."""
    from textnuggets.search.index import NuggetIndex

    files, documents, damage = NuggetIndex.check(index, api_key, show_progress_bar=True)
    for line in damage:
        print(f"{index}: {' '.join(line.split())}")
    if damage:
        raise IndexFileError(
            f"{index} is damaged ({len(damage):,} problems): restore it, or build it again from its documents."
        )
    compared = f"{files:,} files match their checksums" if files else "no checksums to compare with"
    print(f"{index}: {documents:,} documents are sound, {compared}", file=sys.stderr)


@app.command()
def info(index: Place, api_key: Key = None) -> None:
    """Print the settings of an index, its size, and the size of its texts as JSON."""
    with _open(index, api_key, read_only=True) as opened:
        found = {key: "unknown" if value is None else value for key, value in opened.info().items()}
        print(json.dumps(found, indent=1))


def _open(place: str, api_key: str | None, model: str | None = None, read_only: bool = False) -> NuggetIndex:
    from textnuggets.cli.options import load_any, quiet_transformers
    from textnuggets.search.index import NuggetIndex

    quiet_transformers()
    return NuggetIndex.open(place, None if model is None else load_any(model), api_key, read_only)


def _read(docs: str, skip_bad: bool) -> Iterator[Document] | list[Path]:
    """Return documents to encode, or the files of documents that are already encoded."""
    from textnuggets.io.documents import raise_bad_line, read_collection
    from textnuggets.model.parquet import is_nugget_file

    path = Path(docs)
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if files and all(map(is_nugget_file, files)):
        return files

    return read_collection(docs, _report if skip_bad else raise_bad_line)


def _report(error: InputError) -> None:
    print(f"skipped: {error}", file=sys.stderr)


def _add(index: NuggetIndex, source: Iterator[Document] | list[Path], skip_bad: bool) -> None:
    from textnuggets.io.documents import raise_bad_line
    from textnuggets.search.results import Added

    on_bad = _report if skip_bad else raise_bad_line
    try:
        if isinstance(source, list):
            counts = [index.add_encoded(file, True, on_bad) for file in source]
            done = Added(*map(sum, zip(*counts, strict=True)))
        else:
            done = index.add_documents(source, True, on_bad)
    except KeyboardInterrupt:
        print(
            "interrupted: written documents are kept; run the same command again to resume.", file=sys.stderr
        )
        raise typer.Exit(130) from None
    skipped = f", {done.unchanged:,} unchanged" if done.unchanged else ""
    skipped += f", {done.repeated:,} replaced by a later one with the same id" if done.repeated else ""
    print(
        f"{index.place}: {done.written:,} documents written{skipped}, {len(index):,} in all", file=sys.stderr
    )
    _compact_if_it_pays(index, done.written)


def _compact_if_it_pays(index: NuggetIndex, written: int) -> None:
    """Compact if at least half of the index was just written; otherwise print how much that would free."""
    free = index.reclaimable_bytes
    if free < WORTHWHILE:
        return
    if written * 2 >= len(index):  # then it takes no longer than the writing did
        index.compact(show_progress_bar=True)
        print(f"{index.place}: compacted, {index.info()['bytes'] / 1e6:,.1f} MB", file=sys.stderr)
    else:
        print(
            f"{index.place}: 'textnuggets index compact {index.place}' would free {free / 1e6:,.0f} MB",
            file=sys.stderr,
        )


def _check_settings(index: NuggetIndex, **requested: Any) -> None:
    """Raise InputError if an existing index has other settings than requested."""
    for key, value in requested.items():
        current = getattr(index.manifest, key)
        if value is not None and current != value:
            index.close()
            raise InputError(f"{index.place} was created with {key} = {current!r}, not {value!r}.")
