"""Batches of documents that are written to an index together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

BATCH = 128  # documents that are written together and then reported ...
CHARACTERS = 200_000  # ... or fewer if they are long: this takes some seconds to encode

Item = TypeVar("Item")


def batches(items: Iterable[Item], length: Callable[[Item], int] = lambda _: 0) -> Iterator[list[Item]]:
    """Yield lists of at most `BATCH` items; a list also ends once it has `CHARACTERS` characters.

    Args:
        items: Any items.
        length: Number of characters of an item; not limited by default.
    """
    batch: list[Item] = []
    characters = 0
    for item in items:
        batch.append(item)
        characters += length(item)
        if len(batch) == BATCH or characters >= CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
