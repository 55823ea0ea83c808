"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from textnuggets.errors import InputError

if TYPE_CHECKING:
    from textnuggets.model.modeling import NuggetModel

MODEL = "Shipped model (search, reconstruct), folder or hub id"
Model = Annotated[
    str | None,
    typer.Option("--model", help=f"{MODEL}; 'search' by default."),
]
Ratio = Annotated[
    float | None,
    typer.Option(help="Compression ratio; the model's own by default. 0.1 keeps one token in ten."),
]
Number = TypeVar("Number", int, float)
BatchSize = Annotated[int, typer.Option(min=1, help="Texts that go through the model together.")]


def load_model(name: str | None) -> NuggetModel:
    """Load the model of a command."""
    from textnuggets.shipped import DEFAULT, locate

    place = locate(DEFAULT if name is None else name)  # a wrong name is said before torch is imported

    from textnuggets.model.load import load_nugget_model

    quiet_transformers()
    return load_nugget_model(place)


def quiet_transformers() -> None:
    """Do without the remarks transformers makes on the way."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", module="transformers")


def numbers(option: str, text: str, kind: type[Number]) -> list[Number]:
    """Numbers with commas between them, as the value of an option."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"{option} {text}: write numbers with commas between them ({error}).") from error


def check_folder(out: Path) -> None:
    """Whether results can go there, checked before anything slow happens."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: name a folder.")


def check_dtype(dtype: str) -> str:
    """The storage dtype, checked before anything slow happens."""
    if dtype not in ("float32", "float16", "float64"):
        raise typer.BadParameter(f"{dtype!r} is not float32, float16 or float64.", param_hint="--dtype")
    return dtype
