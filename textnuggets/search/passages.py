"""Passages of a document: the whole sentences that match a query best."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textnuggets.io.sentences import sentence_spans
from textnuggets.search.results import Passage

PASSAGES = 3  # passages of a hit at most
LONGEST = 300  # characters of a passage, unless one sentence has more
ENDLESS = 1000  # characters from which a sentence, such as a table, is cut between lines or words
CLOSING = ",;:.!?)]}%\u2019\u201d\u2026\u3001\u3002\uff0c\uff1a\uff1b\uff01\uff1f"  # begins no sentence
BEGINNING = rf"(?=[^\s{re.escape(CLOSING)}])"
LINES = re.compile(rf"\s*\n\s*{BEGINNING}")
WORDS = re.compile(
    rf"\s+{BEGINNING}|(?<=[\u3001\u3002\uff0c\uff1b])"
)  # also clauses of scripts without spaces


class _Placed(NamedTuple):
    """Place of each nugget among the sentences of a document, as `(k,)` numbers of sentences."""

    home: NDArray[np.int64]
    """Sentence with the largest part of the nugget's segment."""
    first: NDArray[np.int64]
    """First sentence that has half of the segment, or half of which is in the segment."""
    last: NDArray[np.int64]
    """Last such sentence."""


def find_passages(
    text: str | None, segments: NDArray[np.int64], cosines: NDArray[np.floating]
) -> list[Passage]:
    """Return the passages that match a query best, best first; they do not overlap.

    A passage is one or more consecutive sentences. Its score is the mean over the query's nuggets of the highest cosine
    with a nugget of the passage. Without a text, segments take the place of sentences.

    Args:
        text: Text of the document, if it is stored.
        segments: `(k, 2)` spans of the document's segments, in order.
        cosines: `(q, k)` cosines of the query's nuggets with the document's.
    """
    spans = whole_sentences(text) if text is not None else np.unique(segments, axis=0).tolist()
    sentences = np.array(spans or [(0, len(text or ""))])
    placed = _place(segments, sentences)
    free = np.ones(len(sentences), bool)
    passages: list[Passage] = []
    while len(passages) < PASSAGES and (window := _best_window(sentences, free, placed.home, cosines)):
        inside = np.flatnonzero((placed.home >= window[0]) & (placed.home <= window[1]))
        best = inside[cosines[:, inside].argmax(1)]
        # Sentences without a best match are left out.
        first, last = int(placed.first[best].min()), int(placed.last[best].max())
        taken = np.flatnonzero(~free)
        first = max([first, *(taken[taken < window[0]] + 1)])
        last = min([last, *(taken[taken > window[1]] - 1)])
        inside = np.flatnonzero((placed.home >= first) & (placed.home <= last))
        start, end = int(sentences[first, 0]), int(sentences[last, 1])
        score = float(cosines[:, inside].max(1).mean())
        passages.append(Passage((start, end), score, None if text is None else text[start:end]))
        free[first : last + 1] = False
    return sorted(passages, key=lambda passage: -passage.score)


def whole_sentences(text: str) -> list[tuple[int, int]]:
    """Return the spans of a text's sentences without the white space around them.

    None begins with a comma or other closing punctuation. A sentence of more than `ENDLESS` characters is cut between lines
    or words.
    """
    joined: list[tuple[int, int]] = []
    for start, end in (_strip(text, *span) for span in sentence_spans(text)):
        if start == end:
            continue
        if text[start] in CLOSING and joined:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    pieces = (piece for span in joined for piece in _cut(text, *span, (LINES, WORDS)))
    stripped = (_strip(text, start, end, CLOSING) for start, end in pieces)
    return [(start, end) for start, end in stripped if start < end]


def _strip(text: str, start: int, end: int, closing: str = "") -> tuple[int, int]:
    """Return a span without white space at its ends, and without closing punctuation at its start."""
    while start < end and (text[start].isspace() or text[start] in closing):
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def _cut(text: str, start: int, end: int, gaps: Sequence[re.Pattern[str]]) -> Iterator[tuple[int, int]]:
    """Yield an endless span in parts of about `LONGEST` characters, cut at the first kind of gap that makes them short."""
    if end - start <= ENDLESS or not gaps:
        yield start, end
        return
    before = start
    for gap in [*(found.end() for found in gaps[0].finditer(text, start, end)), end]:
        if gap - start > LONGEST and before > start:
            yield from _cut(text, start, before, gaps[1:])
            start = before
        before = gap
    yield from _cut(text, start, end, gaps[1:])


def _place(segments: NDArray[np.int64], sentences: NDArray[np.int64]) -> _Placed:
    """Return the place of each segment among the sentences."""
    starts, ends = sentences[:, 0], sentences[:, 1]
    most = len(sentences) - 1
    # The first sentence that ends after the segment's start, and the last that starts before its end.
    low = np.minimum(np.searchsorted(ends, segments[:, 0], side="right"), most)
    high = np.maximum(np.searchsorted(starts, segments[:, 1], side="left") - 1, low)
    rows, spans = [], sentences.tolist()
    for (start, end), i, j in zip(segments.tolist(), low.tolist(), high.tolist(), strict=True):
        shared = {n: min(spans[n][1], end) - max(spans[n][0], start) for n in range(i, j + 1)}
        home = max(shared, key=shared.__getitem__)
        half = [n for n in shared if 2 * shared[n] >= min(end - start, spans[n][1] - spans[n][0])]
        rows.append((home, min([home, *half]), max([home, *half])))
    return _Placed(*np.array(rows).T)


def _best_window(
    sentences: NDArray[np.int64],
    free: NDArray[np.bool_],
    home: NDArray[np.int64],
    cosines: NDArray[np.floating],
) -> tuple[int, int] | None:
    """Return the first and last of the consecutive free sentences that match best; None if none has a nugget.

    They have `LONGEST` characters at most, unless it is one sentence.
    """
    windows, last, spans = [], 0, sentences.tolist()
    may_follow = [*free.tolist(), False]
    for first in np.flatnonzero(free).tolist():
        last = max(first, last)
        while may_follow[last + 1] and spans[last + 1][1] - spans[first][0] <= LONGEST:
            last += 1
        windows.append((first, last))
    bounds = np.array(windows, np.int64).reshape(-1, 2)
    after = np.stack([np.searchsorted(home, bounds[:, 0]), np.searchsorted(home, bounds[:, 1], "right")], 1)
    filled = after[:, 0] < after[:, 1]
    if not filled.any():
        return None
    # The empty column at the end is needed because the last window may end with the last nugget.
    padded = np.concatenate([cosines, np.full((len(cosines), 1), -np.inf, cosines.dtype)], 1)
    scores = np.maximum.reduceat(padded, after[filled].ravel(), axis=1)[:, ::2].mean(0)
    first, last = bounds[filled][int(scores.argmax())].tolist()
    return first, last
