"""textnuggets encode: encode texts into a Parquet file of nuggets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from textnuggets.cli.options import BatchSize, Model, Ratio, SkipBad, check_dtype, check_share, load_any
from textnuggets.errors import InputError


def encode(
    texts: Annotated[
        str,
        typer.Argument(
            help="A .txt file with one text per line, .jsonl with 'text' and optionally 'id', .parquet with these "
            "columns, or '-' for standard input. With a folder or a pattern such as 'shards/*.jsonl', OUT is a "
            "folder with one file each."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Parquet file or folder to write.")],
    model: Model = None,
    ratio: Ratio = None,
    dtype: Annotated[
        str,
        typer.Option(callback=check_dtype, help="Dtype of the stored vectors: float32, float16 or float64."),
    ] = "float32",
    batch_size: BatchSize = 32,
    fidelity: Annotated[
        float | None,
        typer.Option(
            callback=check_share,
            help="Instead of a ratio: use as many nuggets per text as needed to reconstruct it with this BLEU, such "
            "as 0.95. Texts below it are counted at the end. The default model is then 'reconstruct'.",
        ),
    ] = None,
    with_text: Annotated[bool, typer.Option("--with-text", help="Also store the texts.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume an interrupted run; several files resume automatically.")
    ] = False,
    skip_bad: SkipBad = False,
    engine: Annotated[
        str | None, typer.Option(help="Engine for several files: 'local' (default) or 'ray'.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=4096, help="With ray: number of files encoded in parallel; 2 by default."),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="With ray: address of a cluster; a local one is started by default.")
    ] = None,
) -> None:
    """Encode texts into nuggets."""
    several = engine is not None or Path(texts).is_dir() or any(sign in texts for sign in "*?[")
    if several and resume:
        raise InputError(
            "--resume applies to a single file; several files resume automatically: leave it out."
        )
    for option, value in (("--workers", workers), ("--address", address)):
        if engine != "ray" and value is not None:
            raise InputError(f"{option} {value} has no effect without --engine ray.")
    if ratio is not None and fidelity is not None:
        raise InputError(
            "--ratio and --fidelity cannot be combined: --fidelity chooses the ratio of each text."
        )
    if fidelity is not None and model is None:  # the default model has no decoder
        model = "reconstruct"
    if several:
        settings = {"ratio": ratio, "dtype": dtype, "batch_size": batch_size, "with_text": with_text}
        settings |= {"fidelity": fidelity, "skip_bad": skip_bad}
        _encode_shards(texts, out, model, settings, engine or "local", workers or 2, address)
        return
    from textnuggets.io.documents import raise_bad_line, read_documents
    from textnuggets.io.files import check_output

    bad = 0

    def report(error: InputError) -> None:
        nonlocal bad
        bad += 1
        print(f"skipped: {error}", file=sys.stderr)

    check_output(out, texts, model, stream=False)
    documents = read_documents(texts, report if skip_bad else raise_bad_line)
    loaded = load_any(model)

    from textnuggets.bulk.encode import encode_to_parquet
    from textnuggets.model.fingerprint import lasting_name

    try:
        rows = encode_to_parquet(
            loaded,
            documents,
            out,
            name=lasting_name(model),
            ratio=ratio,
            dtype=dtype,
            batch_size=batch_size,
            with_text=with_text,
            fidelity=fidelity,
            resume=resume,
        )
    except KeyboardInterrupt:
        print("interrupted: finished work is kept; resume with --resume.", file=sys.stderr)
        raise typer.Exit(130) from None
    skipped = f"; {bad:,} bad lines skipped" if bad else ""
    print(f"{out}: {rows:,} texts{skipped}", file=sys.stderr)


def _encode_shards(
    pattern: str,
    out: Path,
    model: str | None,
    settings: dict[str, Any],
    engine: str,
    workers: int,
    address: str | None,
) -> None:
    if engine not in ("local", "ray"):
        raise InputError(f"--engine must be 'local' or 'ray', got {engine!r}.")
    from textnuggets.bulk.shards import Settings, encode_shards, find_shards
    from textnuggets.cli.options import quiet_transformers

    shards = find_shards(pattern)
    quiet_transformers()
    try:
        done = encode_shards(shards, out, Settings(model, **settings), engine, workers, address)  # type: ignore[arg-type]
    except KeyboardInterrupt:
        print("interrupted: finished work is kept; run the same command to resume.", file=sys.stderr)
        raise typer.Exit(130) from None
    failed = [item for item in done if item.error is not None]
    rows = sum(item.rows for item in done)
    print(f"{out}: {rows:,} texts from {len(done) - len(failed):,} files", file=sys.stderr)
    if failed:
        raise InputError(
            f"{len(failed)} of {len(done)} files failed (see above): run the same command to retry."
        )
