"""textnuggets report: write one page of all results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from textnuggets.errors import InputError


def report(
    folder: Annotated[
        Path, typer.Argument(help="Folder with results of 'textnuggets evaluate', at any depth.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Output file; report.html in the folder by default.")
    ] = None,
) -> None:
    """Combine figures, tables and verdicts on the paper's claims into one self-contained page."""
    from textnuggets.io.files import check_output, replacing

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder.")
    page = out or folder / "report.html"
    check_output(page, *folder.rglob("*.json"), *folder.rglob("*.png"))

    from textnuggets.report.page import make_report

    content = make_report(folder)
    with replacing(page) as temporary:
        temporary.write_text(content, encoding="utf-8")
    print(f"{page}: {len(content) / 1e6:.1f} MB", file=sys.stderr)
