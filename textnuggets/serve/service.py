"""Service: the models, worker, index and limits that all routes share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from textnuggets.io.documents import is_unicode
from textnuggets.search.index import NuggetIndex
from textnuggets.serve import schemas as s
from textnuggets.serve.middleware import Limits, Refused
from textnuggets.serve.models import Models, Served
from textnuggets.serve.scheduler import Busy, Worker

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
            raise Refused(503, "too many requests are queued: try again later.", kind="busy") from error

    async def check_texts(self, served: Served, **fields: Sequence[str]) -> None:
        """Raise Refused, naming the field, if a text is not valid Unicode or there are too many texts or tokens."""
        tokens = 0
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
            counted = await asyncio.to_thread(served.model.tokenizer, list(texts), verbose=False)
            tokens += sum(map(len, counted.input_ids))
            if tokens > self.limits.tokens:
                message = f"the request has {tokens} tokens up to {field}; the limit is {self.limits.tokens}."
                raise Refused(413, message, field)

    def check_answer(self, numbers: int, field: str) -> None:
        """Raise Refused if a response would contain too many numbers."""
        if numbers > self.limits.numbers:
            raise Refused(
                413,
                f"the response would have {numbers} numbers; the limit is {self.limits.numbers}: lower the ratio or send less.",
                field,
            )


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
