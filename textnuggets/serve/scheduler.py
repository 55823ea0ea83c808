"""One thread for the models, and batches of requests that arrive together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from textnuggets.model.coverage import Coverage, collecting
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.nuggets import Nuggets

CHARACTERS_A_TOKEN = 4  # roughly; a budget need not be exact
Result = TypeVar("Result")


class Busy(Exception):  # noqa: N818  it is an answer more than an error
    """Too much is waiting already."""


@dataclass
class Waiting:
    """A request's texts, until they are encoded."""

    model: NuggetModel
    texts: Sequence[str]
    ratio: float | None
    done: asyncio.Future[list[Nuggets]] = field(repr=False)
    places: int = 1
    """Places it takes in the queue: none if it belongs to a request that has one."""

    @property
    def tokens(self) -> int:
        """Roughly the number of tokens in the texts."""
        return sum(len(text) for text in self.texts) // CHARACTERS_A_TOKEN + len(self.texts)


class Worker:
    """One thread that does everything the models do, so that requests do not slow each other down.

    Encoding waits a few milliseconds for others to join, or for the batch before it; everything else takes its turn.
    """

    def __init__(self, window: float, batch_tokens: int, most: int) -> None:
        """Set up.

        Args:
            window: Seconds to wait for further requests; 0 does not batch.
            batch_tokens: About how many tokens go through the model together.
            most: How many requests may wait.
        """
        self.window, self.batch_tokens, self.most = window, batch_tokens, most
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="nuggets")
        self._waiting: list[Waiting] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sent = 0  # batches that the thread has not finished
        self.pending = 0
        """Requests that were accepted and not answered."""
        self.batches = 0
        self.batched = 0

    async def encode(self, model: NuggetModel, texts: Sequence[str], ratio: float | None) -> list[Nuggets]:
        """Return the nuggets of texts, which share a batch with other requests for the same model and ratio."""
        self._enter()
        return await self._join(Waiting(model, texts, ratio, asyncio.get_running_loop().create_future()))

    async def encode_pair(
        self,
        model: NuggetModel,
        query: str,
        query_ratio: float | None,
        documents: Sequence[str],
        ratio: float | None,
    ) -> tuple[Nuggets, list[Nuggets]]:
        """Return the nuggets of a query and of documents, which are one request with two ratios."""
        loop = asyncio.get_running_loop()
        self._enter()
        asked = Waiting(model, [query], query_ratio, loop.create_future())
        others = Waiting(model, documents, ratio, loop.create_future(), places=0)
        (found,), found_documents = await asyncio.gather(self._join(asked), self._join(others))
        return found, found_documents

    async def _join(self, item: Waiting) -> list[Nuggets]:
        """Wait with others for a batch, and return what it makes of the item."""
        self._waiting.append(item)
        if not self.window or sum(waiting.tokens for waiting in self._waiting) >= self.batch_tokens:
            self._flush()
        elif not self._sent and self._timer is None:  # else it goes with what comes until the thread is free
            self._timer = asyncio.get_running_loop().call_later(self.window, self._flush)
        return await item.done

    async def run(self, action: Callable[[], Result]) -> Result:
        """Do something else with a model, in turn."""
        self._enter()
        given_up = threading.Event()

        def unless_given_up() -> Result:
            if given_up.is_set():
                raise Busy
            with collecting(Coverage()):
                return action()

        task = asyncio.get_running_loop().run_in_executor(self._pool, unless_given_up)
        task.add_done_callback(lambda _: self._leave(1))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            given_up.set()
            raise

    def _enter(self) -> None:
        if self.pending >= self.most:
            raise Busy
        self.pending += 1

    def _leave(self, count: int) -> None:
        """Free places in the queue; called when the thread is done, since abandoned work takes time, too."""
        self.pending -= count

    def _flush(self) -> None:
        """Send what waits to the thread: batches of one model and one ratio, of at most about `batch_tokens`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        together: dict[tuple[NuggetModel, float | None], list[Waiting]] = {}
        for item in waiting:
            together.setdefault((item.model, item.ratio), []).append(item)
        for items in together.values():
            group: list[Waiting] = []
            for item in items:
                if group and sum(other.tokens for other in group) + item.tokens > self.batch_tokens:
                    self._send(group)
                    group = []
                group.append(item)
            self._send(group)

    def _send(self, group: list[Waiting]) -> None:
        self.batches += 1
        self.batched += len(group)
        self._sent += 1
        task = asyncio.get_running_loop().run_in_executor(self._pool, self._encode, group)
        task.add_done_callback(partial(self._deliver, group))

    def _encode(self, group: Sequence[Waiting]) -> list[Any]:
        """Encode all texts at once, in the thread; if that fails, each request alone, so that only the bad one fails."""
        model, ratio = group[0].model, group[0].ratio
        # Requests that were given up while they waited are left out.
        wanted = [item for item in group if not item.done.done()]
        try:
            with collecting(Coverage()):  # a request that needs to know of unknown text counts by itself
                found = iter(model.encode([text for item in wanted for text in item.texts], ratio=ratio))
            made = {id(item): [next(found) for _ in item.texts] for item in wanted}
        except Exception:
            made = {id(item): self._alone(item) for item in wanted}
        return [made.get(id(item)) for item in group]

    def _alone(self, item: Waiting) -> Any:
        try:
            with collecting(Coverage()):
                return item.model.encode(list(item.texts), ratio=item.ratio)
        except Exception as error:
            return error

    def _deliver(self, group: Sequence[Waiting], task: asyncio.Future[list[Any]]) -> None:
        self._leave(sum(item.places for item in group))
        self._sent -= 1
        if task.cancelled():
            return
        for item, result in zip(group, task.result(), strict=True):
            if item.done.done():  # given up meanwhile
                continue
            if isinstance(result, BaseException):
                item.done.set_exception(result)
            else:
                item.done.set_result(result)
        if not self._sent and self._waiting:
            self._flush()

    def close(self) -> None:
        """Finish the work that has begun; drop the rest."""
        self._pool.shutdown(wait=True, cancel_futures=True)
