"""Service: the models, worker, index and limits that all routes share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from textnuggets.io.batching import batches
from textnuggets.io.documents import is_unicode
from textnuggets.model.windows import CutTexts, cut_encodings, tokenize
from textnuggets.search.index import NuggetIndex
from textnuggets.serve import schemas as s
from textnuggets.serve.middleware import Limits, Refused
from textnuggets.serve.models import Models, Served
from textnuggets.serve.scheduler import CHARACTERS_PER_TOKEN, Busy, Worker

ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": s.ErrorAnswer} for code in (400, 401, 404, 408, 411, 413, 421, 422, 500, 503, 504)
}
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Service:
    """State of a running server."""

    models: Models
    worker: Worker
    limits: Limits
    index: NuggetIndex | None
    documents: int | None
    """Number of documents in the index, which does not change while it is served."""

    async def timed(self, work: Awaitable[Answer]) -> Answer:
        """Return the result of the work; raise Refused on a timeout or a full queue."""
        try:
            return await asyncio.wait_for(work, self.limits.timeout)
        except TimeoutError as error:
            message = (
                f"the request took longer than {self.limits.timeout:g} seconds: send fewer or shorter texts."
            )
            raise Refused(504, message, kind="timeout") from error
        except Busy as error:
            raise _busy() from error

    async def check_texts(self, served: Served, **fields: Sequence[str]) -> CutTexts:
        """Return the windows of texts; raise Refused, naming the field, for invalid Unicode and too many texts or tokens.

        All that can be checked without tokenizing is checked first.
        """
        for field, texts in fields.items():
            if len(texts) > self.limits.texts:
                message = f"{field} has {len(texts)} texts; the limit is {self.limits.texts}."
                raise Refused(422, message, field)
            for index, text in enumerate(texts):
                if not text.isascii() and not is_unicode(text):
                    raise Refused(
                        422,
                        f"{field}[{index}] is not valid Unicode: it contains an unpaired surrogate.",
                        field,
                    )
        try:
            self.worker.check_room()
        except Busy as error:
            raise _busy() from error
        return await asyncio.to_thread(self._cut, served, fields)

    def _cut(self, served: Served, fields: Mapping[str, Sequence[str]]) -> CutTexts:
        """Tokenize every text once, until there are too many tokens."""
        tokenizer, limit = served.model.tokenizer, self.limits.tokens
        encodings: dict[str, Any] = {}
        tokens = 0
        for field, texts in fields.items():
            for batch in batches(texts, len(texts), limit, len):
                # The start of a text that is very long for the limit is usually enough to refuse it.
                starts = [text[: limit * 2 * CHARACTERS_PER_TOKEN] for text in batch]
                for step in (starts, batch):
                    if fresh := [text for text in dict.fromkeys(step) if text not in encodings]:
                        encodings.update(zip(fresh, tokenize(tokenizer, fresh), strict=True))
                    count = tokens + sum(len(encodings[text]) for text in step)
                    if count > limit:
                        message = (
                            f"the request has {count} tokens or more up to {field}; the limit is {limit}."
                        )
                        raise Refused(413, message, field)
                tokens = count
        texts = list(dict.fromkeys(text for group in fields.values() for text in group))
        windows = cut_encodings(tokenizer, texts, [encodings[text] for text in texts], served.model.window)
        return CutTexts(tokenizer, served.model.window, dict(zip(texts, windows, strict=True)))

    def check_answer(self, numbers: int, field: str) -> None:
        """Raise Refused if a response could contain too many numbers."""
        if numbers > self.limits.numbers:
            raise Refused(
                413,
                f"the response would have up to {numbers} numbers; the limit is {self.limits.numbers}: lower the ratio or "
                f"send less.",
                field,
            )


def _busy() -> Refused:
    return Refused(503, "too many requests are queued: try again later.", kind="busy")


def get_service(request: Request) -> Service:
    """Return the service of the application that received the request."""
    service: Service = request.app.state.service
    return service


Running = Annotated[Service, Depends(get_service)]


def check_filled(**fields: str) -> None:
    """Raise Refused, naming the field, if a text is empty or only white space."""
    for field, text in fields.items():
        if not text.strip():
            raise Refused(422, f"{field} is empty.", field)
