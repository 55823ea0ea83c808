"""Batches of consecutive items, limited by number and by total length."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def batches(
    items: Iterable[Item],
    size: int,
    characters: float = math.inf,
    length: Callable[[Item], int] = lambda _: 0,
) -> Iterator[list[Item]]:
    """Yield lists of at most `size` consecutive items; a list also ends once it has `characters` characters.

    Args:
        items: Any items.
        size: Maximum number of items of a list.
        characters: Number of characters that ends a list early; unlimited by default.
        length: Number of characters of an item.
    """
    batch: list[Item] = []
    total = 0
    for item in items:
        batch.append(item)
        total += length(item)
        if len(batch) == size or total >= characters:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
