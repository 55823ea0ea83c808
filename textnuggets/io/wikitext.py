"""Articles of WikiText, as they are read by people: its words stand apart, and hyphens in numbers and words are marked.

Models learn from ordinary text; `"60 cm ( 24 in ) , 0 @.@ 7 kg"` is none. What a word is stays as it was: every piece that
the file has between spaces, but for headings, which are left out, as they are in training.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

HEADING = re.compile(r"^\s*=.*=\s*$")
TITLE = re.compile(r"^\s*= [^=].* =\s*$")  # with which an article begins
MARKED = {"@-@": "-", "@,@": ",", "@.@": "."}  # written without spaces around them
CLOSING = frozenset(",.;:!?)]}%'")
OPENING = frozenset("([{$£€#")
SHORT = re.compile(r"^('\w+|n't)$")  # 's, 'll, n't
BETWEEN_NUMBERS = frozenset("–-/")


class LongText(NamedTuple):
    """A text, and where each of its words ends."""

    text: str
    ends: list[int]


def split_words(text: str) -> LongText:
    """Ordinary text: a word is what stands between white space."""
    text = " ".join(text.split())
    return LongText(text, [match.end() for match in re.finditer(r"\S+", text)])


def read_wikitext(lines: Iterable[str]) -> Iterator[LongText]:
    """The articles of a file that has headings; of one that has none, all of it as ordinary text."""
    paragraphs: list[str] = []
    is_wikitext = False
    for line in lines:
        if TITLE.match(line):
            if is_wikitext and paragraphs:
                yield write_out(paragraphs)
                paragraphs = []
            is_wikitext = True
        if line.strip() and not (is_wikitext and HEADING.match(line)):
            paragraphs.append(line)
    if paragraphs:
        yield write_out(paragraphs) if is_wikitext else split_words(" ".join(paragraphs))


def write_out(paragraphs: Sequence[str]) -> LongText:
    """Words that stand apart, as a person writes them."""
    text, ends = "", []
    for paragraph in paragraphs:
        words = paragraph.split()
        glued, quoted = not text, False
        for place, word in enumerate(words):
            joins = word in MARKED or _is_between_numbers(words, place)
            quotes = word == '"'
            closes = joins or word in CLOSING or SHORT.match(word) is not None or (quotes and quoted)
            text += ("" if closes or glued else " ") + MARKED.get(word, word)
            ends.append(len(text))
            quoted ^= quotes
            glued = joins or word in OPENING or (quotes and quoted)
    return LongText(text, ends)


def _is_between_numbers(words: Sequence[str], place: int) -> bool:
    if words[place] not in BETWEEN_NUMBERS or not 0 < place < len(words) - 1:
        return False
    return words[place - 1][-1].isdigit() and words[place + 1][0].isdigit()
