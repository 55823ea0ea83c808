"""Texts with nuggets marked."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tiny import CORPUS, tiny_model
from textnuggets.analysis.highlight import highlight, to_html, to_plain, to_terminal


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.text(max_size=80), st.sampled_from(CORPUS), st.just(" ".join(CORPUS))))
def test_joined_pieces_restore_the_text(model, text):
    pieces = highlight(model, text)
    assert "".join(piece.text for piece in pieces if not piece.is_special) == text


def test_nuggets_are_those_encode_chooses(model):
    for text in [*CORPUS, " ".join(CORPUS)]:
        marked = [piece.text for piece in highlight(model, text, ratio=0.2) if piece.is_nugget]
        assert marked == list(model.encode(text, ratio=0.2).tokens)


def test_shades_follow_the_scores(model):
    pieces = [p for p in highlight(model, CORPUS[0]) if p.score is not None]
    by_score = sorted(pieces, key=lambda p: p.score)
    assert [p.shade for p in by_score] == sorted(p.shade for p in pieces)
    assert by_score[-1].shade == 1.0


def test_pieces_render_as_html_plain_text_and_terminal_text(model):
    pieces = highlight(model, "The <b>cat</b> sat.", ratio=0.3)
    page = to_html([pieces], "A & B", "remark")
    assert "<mark" in page
    assert "&lt;" in page
    assert "<b>" not in page
    assert "A &amp; B" in page
    assert "http" not in page
    assert to_plain(pieces).count("[") == sum(p.is_nugget for p in pieces)
    assert to_terminal(pieces).plain == "".join(p.text for p in pieces)


@pytest.mark.parametrize("selector", ["chunking", "all_tokens", "sentence_boundary", "mean"])
def test_every_selector_can_be_highlighted(selector):
    pieces = highlight(tiny_model(selector=selector), CORPUS[0])
    assert any(piece.is_nugget for piece in pieces)
