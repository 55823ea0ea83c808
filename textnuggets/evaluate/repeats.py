"""Which words a text has said before, and how long ago: what a memory of the past could help with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

REACH = 8  # segments before its own in which a word is looked for
KINDS = ("in its segment", "before it", "not yet")  # where the word was said last


def last_said(forms: Sequence[str], places: NDArray[np.int64], segment: int) -> NDArray[np.int64]:
    """For each word where it was said last, as a number of KINDS.

    Args:
        forms: The words.
        places: `(words,)` which token of the text each begins with.
        segment: Tokens of a segment.
    """
    last: dict[str, int] = {}
    found = np.full(len(forms), KINDS.index("not yet"))
    for number, (form, place) in enumerate(zip(forms, places.tolist(), strict=True)):
        begin = place - place % segment
        before = last.get(form, -1)
        if before >= begin:
            found[number] = KINDS.index("in its segment")
        elif before >= 0 and before >= begin - REACH * segment:
            found[number] = KINDS.index("before it")
        last[form] = place
    return found


def is_name(form: str) -> bool:
    """Whether a word begins with a capital: names for the most part, and the first words of sentences."""
    return form[:1].isupper()
