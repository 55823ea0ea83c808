"""Result types of adding to an index and searching it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Match(NamedTuple):
    """Best match of one nugget of the query in a document."""

    query: tuple[int, int]
    """Span of the nugget's segment in the query."""
    document: tuple[int, int]
    """Span of the best matching segment in the document."""
    score: float
    """Cosine of the two nuggets."""


class Passage(NamedTuple):
    """Consecutive whole sentences of a document."""

    span: tuple[int, int]
    """Characters of the document."""
    score: float
    """Mean over the query's nuggets of the highest cosine with a nugget of the passage."""
    text: str | None
    """Text of the passage if the index stores texts."""


@dataclass(frozen=True)
class Hit:
    """Document found by a search."""

    id: str
    score: float
    """Mean-MaxSim: the mean over the query's nuggets of the highest cosine."""
    matches: list[Match]
    """One match per nugget of the query."""
    passages: list[Passage]
    """Passages that match best, best first."""
    metadata: dict[str, Any]
    text: str | None
    """Text of the document if it was asked for and is stored or can be regenerated."""
    regenerated: bool = False
    """Whether the text was decoded from the vectors and may differ from the original."""


class Added(NamedTuple):
    """Counts of the documents passed to `add`."""

    written: int
    """Documents that were new or changed."""
    unchanged: int
    """Documents already in the index with the same text and metadata."""
    repeated: int = 0
    """Documents replaced by a later one of the same batch with the same id."""
