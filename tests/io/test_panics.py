"""Panics of native code."""

from __future__ import annotations

import os

import pytest

from textnuggets.io.panics import catching_panics


class PanicException(BaseException):
    """As native libraries name it."""


@catching_panics()
def panic():
    os.write(2, b"thread 'x' panicked at src/lib.rs\nstack backtrace:\n")
    raise PanicException("no entry found\nmore")


def test_a_panic_becomes_an_exception_and_its_stack_is_hidden(capfd):
    with pytest.raises(RuntimeError, match=r"^no entry found$"):
        panic()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("error", [None, RuntimeError, KeyError, KeyboardInterrupt])
def test_everything_else_is_passed_on(capfd, error):
    def write():
        with catching_panics():
            os.write(2, b"a warning\n")
            if error is not None:
                raise error("x")

    if error is None:
        write()
    else:
        with pytest.raises(error, match="x"):
            write()
    assert capfd.readouterr().err == "a warning\n"
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"
