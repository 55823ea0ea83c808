"""Decoded texts with the decoder's probability of each word."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from textnuggets.model.layout import SPACE


class Word(NamedTuple):
    """A word of a decoded text."""

    start: int
    end: int
    """`text[start:end]` is the word."""
    probability: float
    """Product of the decoder's probabilities of the word's pieces, in (0, 1]."""


class Reconstruction(NamedTuple):
    """A decoded text and its words."""

    text: str
    words: tuple[Word, ...]


def word_scores(tokenizer: Any, ids: Sequence[int], scores: Sequence[float], text: str) -> list[float]:
    """Return the log-probability of each word of a decoded text.

    Args:
        tokenizer: Tokenizer that decoded the text.
        ids: Token ids.
        scores: Log-probability of each token.
        text: Decoded text of the tokens, without surrounding whitespace.
    """
    special = set(tokenizer.all_special_ids)
    pieces = [(token, score) for token, score in zip(ids, scores, strict=True) if token not in special]
    # A prefix of the tokens decodes to a prefix of the text, except for an incomplete character at its end.
    prefixes = [[token for token, _ in pieces[:end]] for end in range(1, len(pieces) + 1)]
    decoded = tokenizer.batch_decode(prefixes, skip_special_tokens=True) if prefixes else []
    edges = [0, *(_shared_length(prefix.lstrip(), text) for prefix in decoded)]
    spans = _word_spans(text)
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    totals = [0.0] * len(spans)
    for (start, end), (_, score) in zip(pairwise(edges), pieces, strict=True):
        first = bisect_right(ends, start)  # whitespace belongs to the next word
        for word in range(first, max(bisect_left(starts, end), min(first + 1, len(spans)))):
            totals[word] += score
    return totals


def join_words(text: str, spans: Sequence[tuple[int, int]], scores: Sequence[float]) -> Reconstruction:
    """Return the text with its words; adjacent words without whitespace between them are merged."""
    joined: list[tuple[int, int, float]] = []
    for (start, end), score in zip(spans, scores, strict=True):
        if joined and joined[-1][1] == start:
            begin, _, before = joined.pop()
            joined.append((begin, end, before + score))
        else:
            joined.append((start, end, score))
    # A product of many small numbers may underflow, but no decoded word has probability 0.
    least = sys.float_info.min
    words = (Word(start, end, min(1.0, max(least, math.exp(score)))) for start, end, score in joined)
    return Reconstruction(text, tuple(words))


def _shared_length(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    if other.startswith(one):
        return len(one)
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(other))


def _word_spans(text: str) -> list[tuple[int, int]]:
    edges = [0, *(edge for match in SPACE.finditer(text) for edge in match.span()), len(text)]
    return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if end > start]
