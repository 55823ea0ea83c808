"""Packing of sentences into training documents (the paper's section 4).

Adjacent sentences, or aligned pairs, are joined until the next one would exceed the token limit. A sentence is
truncated only if it alone exceeds the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Row(NamedTuple):
    """A sentence or an aligned pair, with the number of tokens of each side."""

    sides: tuple[str, ...]
    tokens: tuple[int, ...]


def pack(rows: Iterable[Row], limit: int) -> Iterator[list[Row]]:
    """Group the rows of one text so that no side of a group has more than `limit` tokens.

    Groups are in order, as long as the limit allows, and contain every row exactly once. A row that exceeds the
    limit by itself forms its own group.
    """
    group: list[Row] = []
    used: tuple[int, ...] = ()
    for row in rows:
        after = tuple(a + b for a, b in zip(used, row.tokens, strict=True)) if group else row.tokens
        if group and max(after) > limit:
            yield group
            group, after = [], row.tokens
        group.append(row)
        used = after
    if group:
        yield group


def join_sides(group: list[Row], joiners: tuple[str, ...]) -> tuple[str, ...]:
    """Join the sentences of each side into one text; `joiners` has the separator of each side."""
    sides = zip(*(row.sides for row in group), strict=True)
    return tuple(joiner.join(side) for joiner, side in zip(joiners, sides, strict=True))
