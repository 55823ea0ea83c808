"""Requests that arrive together go through the model together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from textnuggets.errors import TextnuggetsError
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.nuggets import Nuggets

CHARACTERS_A_TOKEN = 4  # roughly; a budget need not be exact
Result = TypeVar("Result")


class Busy(Exception):  # noqa: N818  it is an answer more than an error
    """Too much is waiting already."""


@dataclass
class Waiting:
    """A request's texts, until they are encoded."""

    texts: Sequence[str]
    ratio: float | None
    done: asyncio.Future[list[Nuggets]] = field(repr=False)

    @property
    def tokens(self) -> int:
        """About how many."""
        return sum(len(text) for text in self.texts) // CHARACTERS_A_TOKEN + len(self.texts)


class Worker:
    """One thread that does everything the model does, so that requests do not slow each other down.

    Encoding waits a few milliseconds for others to join; everything else takes its turn.
    """

    def __init__(self, model: NuggetModel, window: float, batch_tokens: int, most: int) -> None:
        """Set up.

        Args:
            model: What encodes.
            window: Seconds to wait for further requests; 0 does not batch.
            batch_tokens: About how many tokens go through the model together.
            most: How many requests may wait.
        """
        self.model, self.window, self.batch_tokens, self.most = model, window, batch_tokens, most
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="nuggets")
        self._waiting: list[Waiting] = []
        self._timer: asyncio.TimerHandle | None = None
        self.pending = 0
        """Requests that were accepted and not answered."""
        self.batches = 0
        self.batched = 0

    async def encode(self, texts: Sequence[str], ratio: float | None) -> list[Nuggets]:
        """The nuggets of some texts, encoded with whatever else comes along."""
        loop = asyncio.get_running_loop()
        self._enter()
        item = Waiting(texts, ratio, loop.create_future())
        try:
            self._waiting.append(item)
            if not self.window or sum(waiting.tokens for waiting in self._waiting) >= self.batch_tokens:
                self._flush()
            elif self._timer is None:
                self._timer = loop.call_later(self.window, self._flush)
            return await item.done
        finally:
            self.pending -= 1

    async def run(self, action: Callable[[], Result]) -> Result:
        """Do something else with the model, in turn."""
        self._enter()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, action)
        finally:
            self.pending -= 1

    def _enter(self) -> None:
        if self.pending >= self.most:
            raise Busy
        self.pending += 1

    def _flush(self) -> None:
        """Send what waits to the model, one batch for each ratio."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        # Who went away while waiting is not worked for.
        waiting = [item for item in waiting if not item.done.done()]
        for ratio in dict.fromkeys(item.ratio for item in waiting):
            group = [item for item in waiting if item.ratio == ratio]
            self.batches += 1
            self.batched += len(group)
            task = asyncio.get_running_loop().run_in_executor(self._pool, self._encode, group, ratio)
            task.add_done_callback(partial(_deliver, group))

    def _encode(self, group: Sequence[Waiting], ratio: float | None) -> list[Any]:
        """In the thread: all texts at once; if that fails, each request alone, so that only the bad one does."""
        try:
            found = iter(self.model.encode([text for item in group for text in item.texts], ratio=ratio))
            return [[next(found) for _ in item.texts] for item in group]
        except TextnuggetsError:
            return [self._alone(item, ratio) for item in group]

    def _alone(self, item: Waiting, ratio: float | None) -> Any:
        try:
            return self.model.encode(list(item.texts), ratio=ratio)
        except TextnuggetsError as error:
            return error

    def close(self) -> None:
        """Finish what was accepted."""
        self._pool.shutdown(wait=True)


def _deliver(group: Sequence[Waiting], task: asyncio.Future[list[Any]]) -> None:
    error = task.exception()
    results = [error] * len(group) if error is not None else task.result()
    for item, result in zip(group, results, strict=True):
        if item.done.done():  # given up meanwhile
            continue
        if isinstance(result, BaseException):
            item.done.set_exception(result)
        else:
            item.done.set_result(result)
