"""textnuggets reconstruct: decode a Parquet file of nuggets into texts."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Annotated

import typer

from textnuggets.cli.options import MOST_BEAMS, BatchSize, check_share, load_model
from textnuggets.errors import BackboneError, InputError

ROWS = 256  # rows decoded before they are written


def reconstruct(
    nuggets: Annotated[str, typer.Argument(help="Parquet file written by 'textnuggets encode'.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="JSON lines file to write; standard output by default. Written as OUT.partial until it is complete.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", help="Shipped model, folder or hub id; by default the model that encoded the file."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Original texts, matched by id; adds BLEU and exact match to every line."),
    ] = None,
    beams: Annotated[
        int, typer.Option(min=1, max=MOST_BEAMS, help="Beam width; 1 is greedy and fastest.")
    ] = 5,
    batch_size: BatchSize = 16,
    doubtful: Annotated[
        float | None,
        typer.Option(
            callback=check_share,
            help="Add to every line the words with a probability below this, such as 0.5.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Decode nuggets that another model encoded.")
    ] = False,
) -> None:
    """Decode nuggets back into texts, as JSON lines with 'id' and 'text'."""
    from textnuggets.analysis.bleu import Bleu
    from textnuggets.io.files import check_output, find_target
    from textnuggets.io.progress import Progress
    from textnuggets.model.parquet import check_encoder, iter_nuggets, read_metadata
    from textnuggets.model.reconstruction import Reconstruction

    name = model or read_metadata(nuggets).get("model")
    if name is None:
        raise InputError(f"{nuggets} does not record the model that encoded it: set --model.")
    if out is not None:
        check_output(out, nuggets, against, name)
        if (target := find_target(out)) is not None:
            check_output(_partial(target), nuggets, against, name, stream=False)
    originals = _originals(against, nuggets) if against is not None else None
    bleu = Bleu("--against", effective_order=True) if against is not None else None
    loaded = load_model(name)
    if not loaded.can_decode:
        subject = (
            f"{nuggets} was encoded by the model {name!r}, which" if model is None else f"the model {name!r}"
        )
        raise BackboneError(f"{subject} has no decoder: encode the texts with --model reconstruct.")
    if not force:
        try:
            check_encoder(nuggets, loaded)
        except InputError as error:
            raise InputError(
                f"{str(error).removesuffix('.')}, or --force to decode them all the same."
            ) from error
    pairs: list[tuple[str, str]] = []
    rows = iter_nuggets(nuggets)
    with _writer(out) as write, Progress("reconstruct") as progress:
        while part := list(islice(rows, ROWS)):
            items = [item for _, item in part]
            decoded: list[Reconstruction]
            if doubtful is None:
                texts = loaded.reconstruct(items, num_beams=beams, batch_size=batch_size)
                decoded = [Reconstruction(text, ()) for text in texts]
            else:
                decoded = loaded.reconstruct(
                    items, num_beams=beams, batch_size=batch_size, return_probabilities=True
                )
            for (row_id, _), (text, words) in zip(part, decoded, strict=True):
                record: dict[str, object] = {"id": row_id, "text": text}
                if doubtful is not None:
                    record["doubtful"] = [
                        {"word": text[word.start : word.end], **word._asdict()}
                        for word in words
                        if word.probability < doubtful
                    ]
                if originals is not None and bleu is not None:
                    original = originals[row_id]
                    record["bleu"] = round(bleu.sentence(text, original), 2)
                    record["exact"] = text == original
                    pairs.append((text, original))
                write.write(json.dumps(record, ensure_ascii=False) + "\n")
            progress.add(len(part))
    if pairs and bleu is not None:
        score = bleu.corpus([text for text, _ in pairs], [original for _, original in pairs])
        exact = sum(text == original for text, original in pairs) / len(pairs)
        print(f"BLEU {score:.2f}, exact {exact:.1%}, {len(pairs):,} texts", file=sys.stderr)


def _originals(source: str, nuggets: str) -> dict[str, str]:
    """Return the original texts by id; raise InputError if a row of the nugget file has none."""
    from textnuggets.io.documents import read_documents
    from textnuggets.io.parquet import read_batches, to_rows
    from textnuggets.model.parquet import open_nugget_file

    texts = {document.id: document.text for document in read_documents(source)}
    with open_nugget_file(nuggets) as file:
        for batch in read_batches(file, nuggets, 1024, ["id"]):
            for row in to_rows(batch):
                if isinstance(row, InputError):
                    raise InputError(f"{nuggets}: {row}")
                if row["id"] not in texts:
                    raise InputError(f"{source} has no text with id {row['id']!r}.")
    return texts


def _partial(target: Path) -> Path:
    return target.with_name(target.name + ".partial")


@contextmanager
def _writer(out: Path | None) -> Iterator[IO[str]]:
    """Yield standard output, or a file that is renamed to its final name when it is complete.

    Until then it is named OUT.partial; an interrupted run leaves its finished lines there. Lines for a device or pipe
    are written to it as they come.
    """
    from textnuggets.io.disk import rename, sync_file
    from textnuggets.io.files import find_target, open_stream
    from textnuggets.io.locks import writing

    if out is None:
        yield sys.stdout
    elif (target := find_target(out)) is None:
        with io.TextIOWrapper(open_stream(out), encoding="utf-8") as stream:
            yield stream
    else:
        partial = _partial(target)
        with writing(target):
            with partial.open("w", encoding="utf-8") as stream:
                yield stream
            sync_file(partial)
            rename(partial, target)
