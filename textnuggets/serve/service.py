"""What every route works with: the models, the worker, the index and the limits of a request."""

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

WRONG: dict[int | str, dict[str, Any]] = {
    code: {"model": s.ErrorAnswer} for code in (400, 401, 404, 411, 413, 422, 500, 503, 504)
}
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Service:
    """The parts of a running server."""

    models: Models
    worker: Worker
    limits: Limits
    index: NuggetIndex | None
    documents: int | None
    """In the index; it is not written to while it is served."""

    async def timed(self, work: Awaitable[Answer]) -> Answer:
        """Return what the work results in; raise Refused if it takes too long or cannot be queued."""
        try:
            return await asyncio.wait_for(work, self.limits.timeout)
        except TimeoutError as error:
            message = f"it took longer than {self.limits.timeout:g} seconds: send less at once."
            raise Refused(504, message, kind="timeout") from error
        except Busy as error:
            raise Refused(503, "too many requests are waiting: try again.", kind="busy") from error

    async def check_texts(self, served: Served, **fields: Sequence[str]) -> None:
        """Raise Refused, naming the field, if there are too many texts or tokens, or if something is no text."""
        tokens = 0
        for field, texts in fields.items():
            if len(texts) > self.limits.texts:
                message = f"{field} holds {len(texts)} texts; {self.limits.texts} are allowed."
                raise Refused(422, message, field)
            for place, text in enumerate(texts):
                if not text.isascii() and not is_unicode(text):
                    raise Refused(422, f"{field}[{place}] holds half a surrogate pair: it is no text.", field)
            counted = await asyncio.to_thread(served.model.tokenizer, list(texts), verbose=False)
            tokens += sum(map(len, counted.input_ids))
            if tokens > self.limits.tokens:
                message = f"{field} brings {tokens} tokens; {self.limits.tokens} are allowed."
                raise Refused(413, message, field)

    def check_answer(self, numbers: int, field: str) -> None:
        """Raise Refused if an answer would hold too many numbers."""
        if numbers > self.limits.numbers:
            raise Refused(413, f"the answer would hold {numbers} numbers; lower the ratio.", field)


def get_service(request: Request) -> Service:
    """Return the service of the application that received the request."""
    service: Service = request.app.state.service
    return service


Running = Annotated[Service, Depends(get_service)]


def check_filled(**fields: str) -> None:
    """Raise Refused, naming the field, if a text has nothing but white space."""
    for field, text in fields.items():
        if not text.strip():
            raise Refused(422, f"{field} is empty.", field)
