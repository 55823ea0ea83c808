"""Earlier occurrences of words in a text, which a memory of the past could help to predict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

REACH = 8  # number of preceding segments that are searched for a word
KINDS = ("in its segment", "before it", "not yet")  # where a word last occurred


def last_occurrence(forms: Sequence[str], places: NDArray[np.int64], segment: int) -> NDArray[np.int64]:
    """Return where each word last occurred, as indices into KINDS.

    Args:
        forms: Words of a text.
        places: `(words,)` index of the first token of each word.
        segment: Number of tokens per segment.
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
    """Return whether a word is capitalized: mostly names, and the first words of sentences."""
    return form[:1].isupper()
