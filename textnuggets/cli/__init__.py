"""The command `textnuggets`: one file per subcommand, with heavy imports inside the functions."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Annotated, TextIO

import typer

from textnuggets import __version__
from textnuggets.cli.data import app as data
from textnuggets.cli.encode import encode
from textnuggets.cli.evaluate import app as evaluate
from textnuggets.cli.export import export
from textnuggets.cli.highlight import highlight
from textnuggets.cli.index import app as index
from textnuggets.cli.lm import app as lm
from textnuggets.cli.mcp import mcp
from textnuggets.cli.reconstruct import reconstruct
from textnuggets.cli.report import report
from textnuggets.cli.reproduce import reproduce
from textnuggets.cli.search import search
from textnuggets.cli.serve import serve
from textnuggets.cli.train import train
from textnuggets.cli.trim import trim
from textnuggets.errors import InputError, TextnuggetsError, TextnuggetsWarning

# Errors of a name that cannot be what it is given for, in contrast to those of the disk.
BAD_NAMES = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP)
HEAVY = ("torch", "transformers")  # an installation for exported models may lack them
LONGEST = 100  # characters of such a name in a message
EMPTY_OPTION = re.compile(r"--[\w-]+=")
app = typer.Typer(
    name="textnuggets",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich would make --help several times slower
)
app.command()(encode)
app.command()(reconstruct)
app.command()(highlight)
app.add_typer(index, name="index")
app.command()(search)
app.command()(serve)
app.command()(mcp)
app.command()(train)
app.command()(trim)
app.command()(export)
app.add_typer(lm, name="lm")
app.add_typer(data, name="data")
app.add_typer(evaluate, name="evaluate")
app.command()(report)
app.command()(reproduce)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"textnuggets {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Text as a few vectors that can be searched, and decoded back into the text."""


def main() -> None:
    """Run the command line: print errors and warnings as one line on standard error; exit with 2 on bad input."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell, as by >&-
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  open until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # texts are UTF-8 in every locale
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        _check_not_empty(sys.argv[1:])
        with warnings.catch_warnings():
            warnings.simplefilter("default", TextnuggetsWarning)
            warnings.showwarning = _show_warning
            code = app(standalone_mode=False)
    except typer.Abort:
        _fail("interrupted.", 130)
    except typer.TyperException as error:  # a wrong option or argument
        _fail(error.format_message(), 2)
    except TextnuggetsError as error:
        _fail(str(error), 2)
    except ModuleNotFoundError as error:
        if error.name not in HEAVY:
            raise
        _fail(
            f"this needs the package {error.name!r}: pip install textnuggets. Without it, encode, index, search and serve "
            f"take models of 'textnuggets export --onnx'.",
            2,
        )
    except UnicodeEncodeError as error:  # a path in a locale that cannot express it
        shown = error.object.encode("utf-8", "backslashreplace").decode()
        _fail(f"{shown!r} is not valid Unicode in this locale: set PYTHONUTF8=1, or rename it.", 2)
    except KeyboardInterrupt:
        _fail("interrupted.", 130)
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has closed it
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:  # such as a full disk or a missing permission
        if error.errno in BAD_NAMES and error.filename is not None:
            name = str(error.filename)
            _fail(f"{name[:LONGEST]}{' ...' * (len(name) > LONGEST)}: {error.strerror}.", 2)
        _fail(str(error), 1)
    sys.exit(code)


def _check_not_empty(arguments: list[str]) -> None:
    """Raise InputError if an argument is empty: as a path, it would be the current folder."""
    for before, argument in pairwise(["textnuggets", *arguments]):
        if argument == "" or EMPTY_OPTION.fullmatch(argument):
            place = repr(argument) if argument else f"the argument after {before!r}"
            raise InputError(f"{place} is empty: is a variable unset?")


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a TextnuggetsWarning as one line, and other warnings as Python does."""
    stream = sys.stderr if file is None else file
    if issubclass(category, TextnuggetsWarning):
        print(f"warning: {' '.join(str(message).split())}", file=stream)
    else:
        stream.write(warnings.formatwarning(message, category, filename, lineno, line))


def _fail(message: str, code: int) -> None:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
