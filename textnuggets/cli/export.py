"""textnuggets export: write a model in a format that runs without torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from textnuggets.cli.options import MODEL
from textnuggets.errors import InputError


def export(
    model: Annotated[str, typer.Argument(help=f"{MODEL}.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write; it must not exist.")],
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Write ONNX, which onnxruntime runs on a CPU.")
    ] = False,
    int8: Annotated[
        bool,
        typer.Option(
            "--int8",
            help="Round the weights of linear layers to int8: several times faster, and nearly as good.",
        ),
    ] = False,
) -> None:
    """Export a model, for encoding and search without torch."""
    if not onnx:
        raise InputError("name the format to write: --onnx.")
    if out.exists():
        raise InputError(f"{out} already exists: choose a new folder.")
    if not out.absolute().parent.is_dir():
        raise InputError(f"{out}: the folder {out.absolute().parent} does not exist.")
    from textnuggets.shipped import locate

    path = locate(model)

    from textnuggets.cli.options import quiet_transformers
    from textnuggets.io.folders import replacing_folder
    from textnuggets.model.load import load_nugget_model
    from textnuggets.onnx.export import export_onnx

    quiet_transformers()
    loaded = load_nugget_model(path, "cpu")
    with replacing_folder(out) as folder:
        found = export_onnx(loaded, folder, int8)
        size = sum(file.stat().st_size for file in folder.iterdir())
    print(
        f"{out}: {size / 1e6:,.1f} MB; on a few texts, {found.positions:.0%} of the nuggets are at the same tokens as with torch, "
        f"mean cosine {found.cosine:.4f}",
        file=sys.stderr,
    )
