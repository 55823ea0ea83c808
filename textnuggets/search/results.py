"""Documents on their way into an index, and what comes out of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from textnuggets.errors import InputError
from textnuggets.io.documents import Document, is_unicode
from textnuggets.io.hashing import short_digest
from textnuggets.model.nuggets import Nuggets

Item = TypeVar("Item")


class Row(NamedTuple):
    """A document to add, and its nuggets if they are known."""

    document: Document
    digest: str
    nuggets: Nuggets | None


def digest_of(document: Document) -> str:
    """Changes with whatever would be stored differently; what cannot be stored is an error."""
    name, text = document.id, document.text
    if not isinstance(name, str) or not name:
        start = repr(text[:40]) if isinstance(text, str) else "?"
        raise InputError(f"ids must be strings that are not empty, got {name!r} for {start}.")
    if not isinstance(text, str):
        raise InputError(f"texts must be strings; that of {name!r} is {type(text).__name__}.")
    try:
        metadata = json.dumps(document.metadata or {}, sort_keys=True, allow_nan=False, ensure_ascii=False)
        if not all(isinstance(key, str) for key in document.metadata or {}):
            raise TypeError("keys must be strings")
    except (TypeError, ValueError) as error:
        raise InputError(f"the metadata of {name!r} is not what JSON can hold ({error}).") from error
    if not all(map(is_unicode, (name, text, metadata))):
        raise InputError(f"document {name!r} holds half a surrogate pair, so it is no text.")
    return short_digest([f"{metadata}\n{text}".encode()], 12)


def batches(
    items: Iterable[Item], size: int, weight: Callable[[Item], int] = lambda _: 0, most: int = 1
) -> Iterator[list[Item]]:
    """Items in lists of at most `size`, which also end when together they weigh `most`."""
    batch: list[Item] = []
    heavy = 0
    for item in items:
        batch.append(item)
        heavy += weight(item)
        if len(batch) == size or heavy >= most:
            yield batch
            batch, heavy = [], 0
    if batch:
        yield batch


class Match(NamedTuple):
    """What answered one nugget of the query."""

    query: tuple[int, int]
    """The stretch of the query that the nugget closes."""
    document: tuple[int, int]
    """The stretch of the document that answered it best."""
    score: float
    """Their cosine."""


@dataclass(frozen=True)
class Hit:
    """A document that was found."""

    id: str
    score: float
    """Mean-MaxSim: the mean over the query's nuggets of the best cosine."""
    matches: list[Match]
    metadata: dict[str, Any]
    text: str | None
    """The text, if it was stored or could be regenerated."""
    regenerated: bool = False
    """Whether the text was decoded from the vectors, and so may differ from the original."""


class Added(NamedTuple):
    """What came of adding documents."""

    written: int
    unchanged: int
    """Were there already, with the same text and metadata."""
    repeated: int = 0
    """Had the id of one that came shortly after, which took their place."""


def stretch(nuggets: Nuggets, number: int) -> tuple[int, int]:
    """What a nugget stands for in the text: the segment it closes; a token that begins or ends a text, and so closes
    nothing, stands for the nearest segment, rather the one before."""
    segments = nuggets.segments
    filled = np.flatnonzero(segments[:, 0] < segments[:, 1])
    if not len(filled):
        return 0, 0
    before = filled[filled <= number]
    start, end = segments[before[-1] if len(before) else filled[0]]
    return int(start), int(end)
