"""Panics of native code, such as the engine of an index or a tokenizer, as ordinary exceptions."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STDERR = 2  # its file descriptor
_LOCK = threading.RLock()  # the descriptor belongs to all threads


@contextmanager
def catching_panics() -> Iterator[None]:
    """Raise a panic as RuntimeError, without the stack that it writes to standard error.

    A panic is no Exception in Python, and writes past `sys.stderr`. Whatever else is written meanwhile is shown at the end.
    One thread at a time can be here, so use it to load files and not for every call.
    """
    with _LOCK, tempfile.TemporaryFile() as hidden:
        try:
            kept = os.dup(STDERR)
        except OSError:  # closed by the shell, as by 2>&-
            kept = os.open(os.devnull, os.O_WRONLY)
        if sys.stderr is not None:
            sys.stderr.flush()
        os.dup2(hidden.fileno(), STDERR)
        shown = True
        try:
            with _as_exceptions():
                yield
        except RuntimeError as error:
            shown = not is_panic(error.__cause__)
            raise
        finally:
            os.dup2(kept, STDERR)
            os.close(kept)
            hidden.seek(0)
            if shown and (written := hidden.read()):
                os.write(STDERR, written)


@contextmanager
def _as_exceptions() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if not is_panic(error):
            raise
        raise RuntimeError(str(error).strip().split("\n")[0] or "panic") from error


def is_panic(error: BaseException | None) -> bool:
    """Return whether an exception is a panic; every native library has a class of its own for them."""
    return type(error).__name__ == "PanicException"
