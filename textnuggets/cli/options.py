"""Options shared by several commands, and their checks."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from textnuggets.errors import InputError

if TYPE_CHECKING:
    from textnuggets.model.interface import TextInterface
    from textnuggets.model.modeling import NuggetModel

LARGEST = 2**31 - 1  # of counts without a bound of their own
LARGEST_SEED = 2**32 - 1  # NumPy's
MOST_BEAMS = 100


def between(low: float, high: float, above: bool = False) -> Callable[[float | None], float | None]:
    """Return the check of an option's number, which also refuses nan, unlike the bounds of typer.

    Args:
        low: Smallest value.
        high: Largest value.
        above: Whether the value must exceed `low`.
    """

    def check(value: float | None) -> float | None:
        if value is not None and not (low < value <= high if above else low <= value <= high):
            bound = f"{'above' if above else 'at least'} {low:g} and at most {high:g}"
            raise typer.BadParameter(f"must be {bound}, got {value:g}.")
        return value

    return check


check_share = between(0, 1, above=True)
MODEL = "Shipped model (search, reconstruct), folder or hub id"
Model = Annotated[
    str | None,
    typer.Option("--model", help=f"{MODEL}; 'search' by default."),
]
Ratio = Annotated[
    float | None,
    typer.Option(
        callback=check_share, help="Compression ratio; the model's by default. 0.1 keeps one token in ten."
    ),
]
Number = TypeVar("Number", int, float)
BatchSize = Annotated[int, typer.Option(min=1, max=65_536, help="Number of texts per batch.")]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Report and skip lines that cannot be read or stored.")
]


def load_model(name: str | None) -> NuggetModel:
    """Load a model with torch, by name, or the default model."""
    from textnuggets.shipped import DEFAULT, locate

    path = locate(DEFAULT if name is None else name)  # reports a wrong name before torch is imported

    from textnuggets.model.load import load_nugget_model

    quiet_transformers()
    return load_nugget_model(path)


def load_any(name: str | None) -> TextInterface:
    """Load a model that encodes, with torch or, if it was exported, with onnxruntime."""
    from textnuggets.onnx.load import load_encoder

    quiet_transformers()
    return load_encoder(name)


def quiet_transformers() -> None:
    """Silence the messages, warnings and progress bars of transformers, without importing it."""
    warnings.filterwarnings("ignore", module="transformers")
    if "transformers" not in sys.modules:  # these are read when it is imported
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        return
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def numbers(option: str, text: str, kind: type[Number], low: Number, high: Number) -> list[Number]:
    """Parse the comma-separated numbers of an option; raise InputError if one is out of bounds."""
    try:
        parsed = [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"{option} must be comma-separated numbers, got {text!r} ({error}).") from error
    for number in parsed:
        if not low <= number <= high:
            raise InputError(f"{option} must be at least {low:,} and at most {high:,}, got {number}.")
    return parsed


def check_folder(out: Path, patterns: Iterable[str] = (), inputs: Iterable[str | Path] = ()) -> None:
    """Raise InputError if an output folder is a file, or holds an input that would be replaced.

    Args:
        out: Output folder; it may be missing.
        patterns: Names of the files to write, with wildcards.
        inputs: What is read, as for `check_not_read`.
    """
    from textnuggets.io.files import check_not_read

    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: choose a folder.")
    check_not_read((path for pattern in patterns for path in out.glob(pattern)), inputs)


def check_dtype(dtype: str) -> str:
    """Return the storage dtype; raise BadParameter if it is unknown."""
    if dtype not in ("float32", "float16", "float64"):
        raise typer.BadParameter(f"must be float32, float16 or float64, got {dtype!r}.", param_hint="--dtype")
    return dtype
