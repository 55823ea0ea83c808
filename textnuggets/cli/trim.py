"""textnuggets trim: reduce the vocabulary of a model to the tokens of some texts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from textnuggets.cli.options import LARGEST
from textnuggets.errors import InputError


def trim(
    model: Annotated[str, typer.Argument(help="Folder or hub id of a backbone or nugget model.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")],
    texts: Annotated[
        list[str],
        typer.Option(help="Corpus in the language to keep, in any format of 'train'; may be repeated."),
    ],
    languages: Annotated[
        str, typer.Option(help="Language of the texts; both for aligned pairs: en,fr.")
    ] = "en",
    spm: Annotated[
        Path | None,
        typer.Option(
            help="For Marian: SentencePiece model for tokenizing; the model's source.spm by default."
        ),
    ] = None,
    min_count: Annotated[
        int, typer.Option(min=1, max=LARGEST, help="Minimum number of occurrences of a piece to keep it.")
    ] = 1,
) -> None:
    """Keep only the vocabulary used by some texts, and build a fast tokenizer for it."""
    from textnuggets.cli.options import quiet_transformers
    from textnuggets.io.corpora import check_source, read_texts

    if out.exists():
        raise InputError(f"{out} already exists: choose a new folder.")
    if not out.absolute().parent.is_dir():
        raise InputError(f"{out}: the folder {out.absolute().parent} does not exist.")
    if spm is not None and not spm.is_file():
        raise InputError(f"{spm}: no such file.")
    for source in texts:
        check_source(source)
    quiet_transformers()

    from textnuggets.io.folders import replacing_folder
    from textnuggets.model.vocabulary import trim as trim_vocabulary

    trimmed = trim_vocabulary(model, read_texts(texts, languages.split(",")), spm, min_count)
    with replacing_folder(out) as folder:
        trimmed.model.save_pretrained(folder)
        trimmed.tokenizer.save_pretrained(folder)
    print(
        f"{out}: {len(trimmed.kept):,} of {trimmed.vocabulary_before:,} pieces, "
        f"{trimmed.model.num_parameters() / 1e6:.1f} of {trimmed.parameters_before / 1e6:.1f} M parameters",
        file=sys.stderr,
    )
