"""textnuggets highlight: show which tokens a model selects as nuggets."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from textnuggets.cli.options import Model, Ratio, load_any
from textnuggets.errors import InputError
from textnuggets.shipped import DEFAULT

FILE_NAME = re.compile(r"\S+\.(txt|jsonl|parquet)(\.gz)?")


def highlight(
    text: Annotated[str, typer.Argument(help="A text, or a file of texts in the formats of 'encode'.")],
    model: Model = None,
    ratio: Ratio = None,
    html: Annotated[
        Path | None, typer.Option(help="HTML page to write, instead of printing to the terminal.")
    ] = None,
) -> None:
    """Show texts with tokens shaded by score and nuggets in green."""
    from textnuggets.io.documents import is_unicode, read_documents
    from textnuggets.io.files import check_output, replacing

    if html is not None:
        check_output(html, text if _names_a_file(text) else None, model)
    texts = [document.text for document in read_documents(text)] if _names_a_file(text) else [text]
    if not all(map(is_unicode, texts)):
        raise InputError("the text is not valid Unicode: it contains an unpaired surrogate.")
    loaded = load_any(model)

    from textnuggets.analysis.highlight import highlight as find_pieces
    from textnuggets.analysis.highlight import to_html, to_plain, to_terminal

    pieces = [find_pieces(loaded, item, ratio) for item in texts]
    if html is not None:
        used = loaded.config.ratio if ratio is None else ratio
        remark = (
            f"Stronger tokens have higher scores; nuggets are green. "
            f"Model: {model or DEFAULT}, ratio {used:g}."
        )
        with replacing(html) as temporary:
            temporary.write_text(to_html(pieces, "Nuggets", remark), encoding="utf-8")
        print(f"{html}: {len(texts):,} texts", file=sys.stderr)
        return

    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for item in pieces:
        # Colours only if the terminal has them; rich respects NO_COLOR.
        if console.color_system:
            console.print(to_terminal(item))
        else:
            print(to_plain(item))


def _names_a_file(text: str) -> bool:
    """Return whether the argument is a file, or looks like a file name and must be reported if missing."""
    try:
        return text == "-" or Path(text).is_file() or bool(FILE_NAME.fullmatch(text))
    except (OSError, ValueError):  # too long for a file name, or with a null character
        return False
