"""textnuggets report: evaluated results as one page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from textnuggets.errors import InputError


def report(
    folder: Annotated[
        Path, typer.Argument(help="A folder with results of 'textnuggets evaluate' in it or below.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; report.html in the folder by default.")
    ] = None,
) -> None:
    """Join figures, tables and the paper's claims into one self-contained page."""
    from textnuggets.io.files import check_output, replacing

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder.")
    page = out or folder / "report.html"
    check_output(page)

    from textnuggets.report.page import make_report

    content = make_report(folder)
    with replacing(page) as temporary:
        temporary.write_text(content, encoding="utf-8")
    print(f"{page}: {len(content) / 1e6:.1f} MB", file=sys.stderr)
