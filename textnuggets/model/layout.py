"""White space that vectors do not hold: line breaks, blank lines, tabs and indentation, kept beside them."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class Layout:
    """Every run of white space in a text that is not one space between two words."""

    words: tuple[int, ...] = ()
    """Number of words in each window; empty where it is not known."""
    runs: tuple[tuple[int, str], ...] = ()
    """`(words before it, white space)` of each run, in reading order; empty for ordinary text."""

    @classmethod
    def of(cls, text: str, windows: Sequence[tuple[int, int]]) -> Layout:
        """Return the layout of a text that is encoded in these stretches of characters.

        A word that is cut by the end of a window counts in both windows.
        """
        words = tuple(len(text[start:end].split()) for start, end in windows)
        if " ".join(text.split()) == text:
            return cls(words)
        cuts = [end for (_, end), (start, _) in pairwise(windows) if start == end]
        first = 0 if text[:1].isspace() else 1  # words before the first run
        found = []
        for number, match in enumerate(SPACE.finditer(text)):
            if match.group() != " " or match.start() == 0 or match.end() == len(text):
                found.append((number + first + bisect_left(cuts, match.start()), match.group()))
        return cls(words, tuple(found))

    @classmethod
    def concat(cls, parts: Sequence[Layout]) -> Layout:
        """Join the layouts of consecutive stretches of one text; unknown if one of them is."""
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
        """Join decoded windows into one text that has this layout.

        Args:
            parts: The decoded text of each window, without white space around it.
            glued: Whether there was nothing between a window and the next one.

        Returns:
            The text, and the characters of each word of each window in it.
        """
        words = [part.split() for part in parts]
        gaps = [""]  # what stands before each word, and behind the last
        for number, part in enumerate(parts):
            if number and len(gaps) > 1 and not glued[number - 1]:
                gaps[-1] = " "
            if words[number]:
                inner = [" "] * (len(words[number]) - 1) if self.runs else SPACE.findall(part)
                gaps += [*inner, ""]
        gaps[-1] = ""
        filled: set[int] = set()
        for place, space in self._places([len(window) for window in words]):
            gaps[place] = gaps[place] + space if place in filled else space
            filled.add(place)
        pieces, spans, length = [gaps[0]], [], len(gaps[0])
        for word, gap in zip((word for window in words for word in window), gaps[1:], strict=True):
            pieces += (word, gap)
            spans.append((length, length + len(word)))
            length += len(word) + len(gap)
        return "".join(pieces), spans

    def _places(self, decoded: Sequence[int]) -> Iterator[tuple[int, str]]:
        """Yield the gap of each run among the decoded words, given their number in each window."""
        was = list(accumulate(self.words, initial=0))
        now = list(accumulate(decoded, initial=0))
        for before, space in self.runs:
            window = bisect_left(was, before)
            if window < len(was) and was[window] == before:  # at the edge of a window
                yield now[window], space
                continue
            window = bisect_right(was, before) - 1
            inside, count = before - was[window], decoded[window]
            if count != self.words[window]:
                inside = round(inside * count / self.words[window])
                inside = max(min(inside, count - 1), min(1, count))  # not at an edge, where it can be helped
            yield now[window] + inside, space


ORDINARY = Layout()
