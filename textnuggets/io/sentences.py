"""Where sentences end, as character offsets, in any language."""

from __future__ import annotations

import sentencex


def sentence_spans(text: str, language: str = "en") -> list[tuple[int, int]]:
    """`(start, end)` of every sentence; together they cover the text without a gap.

    White space belongs to the sentence before it. Terminators of other scripts are known whatever
    the language; `language` only decides which abbreviations do not end a sentence.
    """
    return [
        (sentence["start_index"], sentence["end_index"])
        for sentence in sentencex.get_sentence_boundaries(language, text)
        if sentence["end_index"] > sentence["start_index"]
    ]
