"""Sentence boundaries as offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from textnuggets.io.sentences import sentence_spans


@given(st.text())
def test_sentences_cover_the_text_without_a_gap(text):
    spans = sentence_spans(text)
    assert "".join(text[start:end] for start, end in spans) == text


def test_abbreviations_and_other_scripts_are_known():
    text = "Dr. Smith left. Why? 第一句。第二句！"
    assert [text[a:b].strip() for a, b in sentence_spans(text)] == [
        "Dr. Smith left.",
        "Why?",
        "第一句。",
        "第二句！",
    ]
