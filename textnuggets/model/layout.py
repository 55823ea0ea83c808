"""Whitespace stored next to the vectors: line breaks, blank lines, tabs and indentation."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class Layout:
    """Runs of whitespace in a text other than a single space between two words."""

    words: tuple[int, ...] = ()
    """Number of words of each window; empty if unknown."""
    runs: tuple[tuple[int, str], ...] = ()
    """`(number of words before it, whitespace)` of each run, in reading order; empty for ordinary text."""

    @classmethod
    def of(cls, text: str, windows: Sequence[tuple[int, int]]) -> Layout:
        """Return the layout of a text, given the character span of each window.

        A word split by a window boundary counts in both windows.
        """
        words = tuple(len(text[start:end].split()) for start, end in windows)
        if " ".join(text.split()) == text:
            return cls(words)
        cuts = [end for (_, end), (start, _) in pairwise(windows) if start == end]
        first = 0 if text[:1].isspace() else 1  # words before the first run
        runs = []
        for number, match in enumerate(SPACE.finditer(text)):
            if match.group() != " " or match.start() == 0 or match.end() == len(text):
                runs.append((number + first + bisect_left(cuts, match.start()), match.group()))
        return cls(words, tuple(runs))

    @classmethod
    def concat(cls, parts: Sequence[Layout]) -> Layout:
        """Concatenate the layouts of consecutive parts of a text; unknown if any of them is."""
        if not all(part.words for part in parts):
            return cls()
        offsets = accumulate((sum(part.words) for part in parts), initial=0)
        return cls(
            words=tuple(count for part in parts for count in part.words),
            runs=tuple(
                (before + offset, space)
                for part, offset in zip(parts, offsets, strict=False)
                for before, space in part.runs
            ),
        )

    def join(self, parts: Sequence[str], glued: Sequence[bool]) -> tuple[str, list[tuple[int, int]]]:
        """Join decoded windows into one text with this layout.

        Args:
            parts: Decoded text of each window, without surrounding whitespace.
            glued: Whether each window is followed by the next without whitespace.

        Returns:
            The text, and the character span of each word of each window.
        """
        words = [part.split() for part in parts]
        gaps = [""]  # whitespace before each word, and after the last
        for number, part in enumerate(parts):
            if number and len(gaps) > 1 and not glued[number - 1]:
                gaps[-1] = " "
            if words[number]:
                inner = [" "] * (len(words[number]) - 1) if self.runs else SPACE.findall(part)
                gaps += [*inner, ""]
        gaps[-1] = ""
        filled: set[int] = set()
        for gap, space in self._gaps([len(window) for window in words]):
            gaps[gap] = gaps[gap] + space if gap in filled else space
            filled.add(gap)
        pieces, spans, length = [gaps[0]], [], len(gaps[0])
        for word, space in zip((word for window in words for word in window), gaps[1:], strict=True):
            pieces += (word, space)
            spans.append((length, length + len(word)))
            length += len(word) + len(space)
        return "".join(pieces), spans

    def _gaps(self, decoded: Sequence[int]) -> Iterator[tuple[int, str]]:
        """Yield `(gap index, whitespace)` of each run, given the number of decoded words of each window."""
        was = list(accumulate(self.words, initial=0))
        now = list(accumulate(decoded, initial=0))
        for before, space in self.runs:
            window = bisect_left(was, before)
            if window < len(was) and was[window] == before:  # at a window boundary
                yield now[window], space
                continue
            window = bisect_right(was, before) - 1
            inside, count = before - was[window], decoded[window]
            if count != self.words[window]:
                inside = round(inside * count / self.words[window])
                inside = max(min(inside, count - 1), min(1, count))  # not at a boundary, if possible
            yield now[window] + inside, space


ORDINARY = Layout()
