"""textnuggets highlight: see what a model picks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from textnuggets.cli.options import Model, Ratio, load_model


def highlight(
    text: Annotated[str, typer.Argument(help="A text, or a file of texts as 'encode' reads them.")],
    model: Model = None,
    ratio: Ratio = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a self-contained page instead of to the terminal.")
    ] = None,
) -> None:
    """Shade tokens by score, with nuggets on green."""
    from textnuggets.text.documents import read_documents

    is_file = text == "-" or Path(text[:255]).is_file()
    texts = [document.text for document in read_documents(text)] if is_file else [text]
    loaded = load_model(model)

    from textnuggets.highlighting import highlight as find_pieces
    from textnuggets.highlighting import to_html, to_plain, to_terminal

    pieces = [find_pieces(loaded, item, ratio) for item in texts]
    if html is not None:
        used = loaded.config.ratio if ratio is None else ratio
        remark = (
            f"The stronger a token is printed, the higher its score; those on green are the nuggets. "
            f"Model: {model or 'default'}, ratio {used:g}."
        )
        html.write_text(to_html(pieces, "Nuggets", remark), encoding="utf-8")
        print(f"{html}: {len(texts):,} texts", file=sys.stderr)
        return

    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for item in pieces:
        # Colours only where they can be seen; NO_COLOR is honoured by rich.
        console.print(to_terminal(item) if console.color_system else to_plain(item), markup=False)
