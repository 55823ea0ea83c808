"""Cancellation of encoding and decoding, for callers that no longer need the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Cancelled(Exception):  # noqa: N818  a request of the caller rather than an error
    """The work was cancelled."""


_STOPPED: ContextVar[Callable[[], bool] | None] = ContextVar("stopped", default=None)


@contextmanager
def cancelled_if(stopped: Callable[[], bool]) -> Iterator[None]:
    """Raise Cancelled from the block, at its next batch or decoded token, once `stopped` returns True.

    Args:
        stopped: Function that is called often, in the thread of the block.
    """
    token = _STOPPED.set(stopped)
    try:
        yield
    finally:
        _STOPPED.reset(token)


def check_cancelled() -> None:
    """Raise Cancelled if the enclosing `cancelled_if` says so."""
    stopped = _STOPPED.get()
    if stopped is not None and stopped():
        raise Cancelled
