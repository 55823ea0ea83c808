"""WikiText articles, detokenized to ordinary text.

WikiText separates punctuation by spaces and marks hyphens and separators, as in `"60 cm ( 24 in ) , 0 @.@ 7 kg"`, unlike
the text that models are trained on. Words are still counted as in the file: every token between spaces is a word,
except headings, which are dropped, as in training.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

HEADING = re.compile(r"^\s*=.*=\s*$")
TITLE = re.compile(r"^\s*= [^=].* =\s*$")  # first line of an article
ENDED = re.compile(r"[.!?:;\"”')]\s*$")  # end of a paragraph
MARKED = {"@-@": "-", "@,@": ",", "@.@": "."}  # written without spaces around them
CLOSING = frozenset(",.;:!?)]}%'")
OPENING = frozenset("([{$£€#")
SHORT = re.compile(r"^('\w+|n't)$")  # 's, 'll, n't
BETWEEN_NUMBERS = frozenset("–-/")


class LongText(NamedTuple):
    """A text and the character offset at which each of its words ends."""

    text: str
    ends: list[int]


def split_words(text: str) -> LongText:
    """Normalize the white space of ordinary text and split it into words there."""
    text = " ".join(text.split())
    return LongText(text, [match.end() for match in re.finditer(r"\S+", text)])


def read_wikitext(lines: Iterable[str]) -> Iterator[LongText]:
    """Yield the articles of a file with headings, or the whole file as one text if it has none."""
    paragraphs: list[str] = []
    is_wikitext = False
    before = ""
    for line, after in pairwise(chain(lines, [""])):
        is_heading = HEADING.match(line) is not None and not _is_formula(before, after)
        if is_heading and TITLE.match(line):
            if is_wikitext and paragraphs:
                yield write_out(paragraphs)
                paragraphs = []
            is_wikitext = True
        if line.strip() and not (is_wikitext and is_heading):
            paragraphs.append(line)
        before = line
    if paragraphs:
        yield write_out(paragraphs) if is_wikitext else split_words(" ".join(paragraphs))


def _is_formula(before: str, after: str) -> bool:
    """Return whether a line between equals signs continues the line before it and is continued by the line after it.

    WikiText-103 breaks sentences with formulas, such as "a cut-off frequency of ω = 1 rad / s and an impedance k = 1 Ω", at
    their equals signs.
    """
    before, after = before.strip(), after.strip()
    ended = not before or HEADING.match(before) or ENDED.search(before)
    return not ended and (after[:1].islower() or after[:1].isdigit())


def write_out(paragraphs: Sequence[str]) -> LongText:
    """Detokenize paragraphs into one text, keeping the end of each original token."""
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
