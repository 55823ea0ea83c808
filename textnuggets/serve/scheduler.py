"""One thread that runs the models, and batching of concurrent requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

from textnuggets.model.cancelling import Cancelled, cancelled_if, check_cancelled
from textnuggets.model.coverage import Uncounted, collecting
from textnuggets.model.interface import TextInterface
from textnuggets.model.nuggets import Nuggets
from textnuggets.model.windows import CutTexts, reusing

CHARACTERS_PER_TOKEN = 4  # an estimate, which is enough for a budget
Result = TypeVar("Result")


class Busy(Exception):  # noqa: N818  a response rather than an error
    """The queue is full."""


@dataclass
class Waiting:
    """Texts of a request that wait to be encoded."""

    model: TextInterface
    texts: Sequence[str]
    ratio: float | None
    cut: CutTexts | None
    """Windows of the texts, if they are tokenized already."""
    done: asyncio.Future[list[Nuggets]] = field(repr=False)
    places: int = 1
    """Places it takes in the queue: 0 if another part of the same request takes one."""

    @property
    def tokens(self) -> int:
        """Estimated number of tokens in the texts."""
        return sum(len(text) for text in self.texts) // CHARACTERS_PER_TOKEN + len(self.texts)


class Worker:
    """One thread that runs all models, so that requests do not compete for the processor.

    Texts to encode wait a few milliseconds, or until the current batch is finished, and are encoded in batches. Other
    work runs one item at a time, in order. Work whose requests are all cancelled ends at its next batch or decoded token.

    Args:
        window: Seconds to wait for further requests; 0 disables batching.
        batch_tokens: Approximate number of tokens per batch.
        most: Maximum number of queued requests.
    """

    def __init__(self, window: float, batch_tokens: int, most: int) -> None:
        self.window, self.batch_tokens, self.most = window, batch_tokens, most
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="nuggets")
        self._waiting: list[Waiting] = []
        self._timer: asyncio.TimerHandle | None = None
        self._sent = 0  # batches sent to the thread and not finished
        self.pending = 0
        """Number of requests accepted and not completed."""
        self.batches = 0
        """Number of batches encoded."""
        self.batched = 0
        """Number of requests encoded in batches."""

    async def encode(
        self, model: TextInterface, texts: Sequence[str], ratio: float | None, cut: CutTexts | None = None
    ) -> list[Nuggets]:
        """Return the nuggets of texts, batched with other requests for the same model and ratio.

        Args:
            model: Model that encodes them.
            texts: Texts of a request.
            ratio: Compression ratio; the model's if None.
            cut: Windows of the texts, if they are tokenized already.
        """
        self._enter()
        return await self._join(Waiting(model, texts, ratio, cut, asyncio.get_running_loop().create_future()))

    async def encode_pair(
        self,
        model: TextInterface,
        query: str,
        documents: Sequence[str],
        ratio: float | None,
        cut: CutTexts | None = None,
    ) -> tuple[Nuggets, list[Nuggets]]:
        """Return the nuggets of a query and of documents, as one request with two ratios."""
        ratio = model.config.ratio if ratio is None else ratio
        query_ratio = model.config.ratio_of_queries(ratio)
        loop = asyncio.get_running_loop()
        self._enter()
        query_item = Waiting(model, [query], query_ratio, cut, loop.create_future())
        document_item = Waiting(model, documents, ratio, cut, loop.create_future(), places=0)
        (query_nuggets,), document_nuggets = await asyncio.gather(
            self._join(query_item), self._join(document_item)
        )
        return query_nuggets, document_nuggets

    async def _join(self, item: Waiting) -> list[Nuggets]:
        """Add an item to the next batch, and return its nuggets."""
        self._waiting.append(item)
        if not self.window or sum(waiting.tokens for waiting in self._waiting) >= self.batch_tokens:
            self._flush()
        elif not self._sent and self._timer is None:  # otherwise the end of the current batch flushes
            self._timer = asyncio.get_running_loop().call_later(self.window, self._flush)
        return await item.done

    async def run(self, action: Callable[[], Result], cut: CutTexts | None = None) -> Result:
        """Run any other action in the thread, and return its result; `cut` has the windows of texts it uses."""
        self._enter()
        cancelled = threading.Event()

        def unless_cancelled() -> Result | None:
            with suppress(Cancelled), self._working(cancelled.is_set, [cut]):
                check_cancelled()
                return action()
            return None  # nobody waits for it

        task = asyncio.get_running_loop().run_in_executor(self._pool, unless_cancelled)
        task.add_done_callback(lambda _: self._leave(1))
        try:
            return cast("Result", await asyncio.shield(task))
        except asyncio.CancelledError:
            cancelled.set()
            raise

    @contextmanager
    def _working(self, stopped: Callable[[], bool], cuts: Iterable[CutTexts | None]) -> Iterator[None]:
        """Let the work of the block stop, reuse the windows of its texts, and issue no warnings."""
        known = [cut for cut in cuts if cut is not None]
        with ExitStack() as stack:
            if known:  # all of the same model
                windows = {text: parts for cut in known for text, parts in cut.windows.items()}
                stack.enter_context(reusing(replace(known[0], windows=windows)))
            stack.enter_context(cancelled_if(stopped))
            stack.enter_context(collecting(Uncounted()))
            yield

    def check_room(self) -> None:
        """Raise Busy if the queue is full."""
        if self.pending >= self.most:
            raise Busy

    def _enter(self) -> None:
        self.check_room()
        self.pending += 1

    def _leave(self, count: int) -> None:
        """Free places in the queue, once the thread is done with them."""
        self.pending -= count

    def _flush(self) -> None:
        """Send all waiting items to the thread, in batches of one model and ratio and about `batch_tokens` tokens."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        groups: dict[tuple[TextInterface, float | None], list[Waiting]] = {}
        for item in waiting:
            groups.setdefault((item.model, item.ratio), []).append(item)
        for items in groups.values():
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
        """Encode a batch in the thread; if it fails, encode each request alone, so that only the bad one fails."""
        model, ratio = group[0].model, group[0].ratio
        # Skip requests that were cancelled while they waited.
        active = [item for item in group if not item.done.done()]
        try:
            with self._working(lambda: all(item.done.done() for item in active), [i.cut for i in active]):
                found = iter(model.encode([text for item in active for text in item.texts], ratio=ratio))
            results = {id(item): [next(found) for _ in item.texts] for item in active}
        except Exception:
            results = {id(item): self._encode_alone(item) for item in active}
        return [results.get(id(item)) for item in group]

    def _encode_alone(self, item: Waiting) -> Any:
        try:
            with self._working(item.done.done, [item.cut]):
                return item.model.encode(list(item.texts), ratio=item.ratio)
        except Exception as error:
            return error

    def _deliver(self, group: Sequence[Waiting], task: asyncio.Future[list[Any]]) -> None:
        self._leave(sum(item.places for item in group))
        self._sent -= 1
        if task.cancelled():
            return
        for item, result in zip(group, task.result(), strict=True):
            if item.done.done():  # cancelled in the meantime
                continue
            if isinstance(result, BaseException):
                item.done.set_exception(result)
            else:
                item.done.set_result(result)
        if not self._sent and self._waiting:
            self._flush()

    def close(self) -> None:
        """Finish running work, and drop the rest."""
        self._pool.shutdown(wait=True, cancel_futures=True)
