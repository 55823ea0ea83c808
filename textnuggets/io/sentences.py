"""Sentence boundaries as character offsets, for any language."""

from __future__ import annotations

import sentencex


def sentence_spans(text: str, language: str = "en") -> list[tuple[int, int]]:
    """Return `(start, end)` of every sentence; together they cover the text without gaps.

    White space belongs to the preceding sentence. Terminators of all scripts are recognized in every
    language; `language` only selects the abbreviations that do not end a sentence.
    """
    return [
        (sentence["start_index"], sentence["end_index"])
        for sentence in sentencex.get_sentence_boundaries(language, text)
        if sentence["end_index"] > sentence["start_index"]
    ]
