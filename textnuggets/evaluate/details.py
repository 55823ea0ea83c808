"""Details that decoding preserves: numbers and capitalized words, counted in texts and their reconstructions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

NUMBER = re.compile(r"\d+(?:[.,:/]\d+)*")
CAPITALIZED = re.compile(r"\b[^\W\d_a-z]\w*(?:[-'’]\w+)*")


def share_kept(pattern: re.Pattern[str], decoded: Sequence[str], references: Sequence[str]) -> float | None:
    """Return the share of the matches in the references that also occur in the decoded texts.

    A match that occurs twice in a reference has to occur twice in its decoded text.

    Args:
        pattern: `NUMBER` or `CAPITALIZED`.
        decoded: Decoded texts.
        references: Their originals, in the same order.

    Returns:
        The share, or None if no reference has a match.
    """
    kept = total = 0
    for text, reference in zip(decoded, references, strict=True):
        expected = Counter(pattern.findall(reference))
        kept += (expected & Counter(pattern.findall(text))).total()
        total += expected.total()
    return kept / total if total else None
