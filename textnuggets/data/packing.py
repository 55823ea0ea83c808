"""Sentences into training documents, as in the paper's section 4.

Adjacent sentences, or aligned pairs with both sides in step, are joined until the next one would pass
the limit. A sentence is cut only if it alone is longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Row(NamedTuple):
    """A sentence, or a pair of aligned ones, with the number of tokens of each side."""

    sides: tuple[str, ...]
    tokens: tuple[int, ...]


def pack(rows: Iterable[Row], limit: int) -> Iterator[list[Row]]:
    """Group the rows of one text so that no side of a group has more than `limit` tokens.

    Groups are as long as the limit allows, in order, and together hold every row once. A row that
    alone passes the limit is a group of its own.
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
    """Each side's sentences as one text; `joiners` stand between them, a space in most languages."""
    sides = zip(*(row.sides for row in group), strict=True)
    return tuple(joiner.join(side) for joiner, side in zip(joiners, sides, strict=True))
