"""Whitespace other than single spaces survives encoding and decoding."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiny import CORPUS
from textnuggets import Nuggets, load_nuggets, save_nuggets
from textnuggets.errors import InputError
from textnuggets.model.layout import Layout

POEM = "  The cat sat on the mat,\n\tand the dog lay by the door.\n"


def squeeze(text: str) -> str:
    return " ".join(text.split())


def test_ordinary_text_has_no_runs():
    assert Layout.of("one two three", [(0, 13)]) == Layout((3,))
    assert Layout.of("", [(0, 0)]) == Layout((0,))


def test_line_breaks_tabs_and_edges_are_runs():
    assert Layout.of(" a\n\nb c\td ", [(1, 9)]) == Layout((4,), ((0, " "), (1, "\n\n"), (3, "\t"), (4, " ")))


@given(st.text("ab \n\t\u00a0", max_size=40))
def test_a_text_whose_words_come_back_comes_back_exactly(text):
    layout = Layout.of(text, [(0, len(text))])
    assert layout.join([squeeze(text)], [])[0] == text


@given(st.text("ab \n\t", min_size=1, max_size=40), st.data())
def test_a_text_of_several_windows_comes_back_exactly_even_if_a_word_is_split(text, data):
    cut = data.draw(st.integers(1, len(text)))
    edges = [(0, cut), (cut, len(text))]
    windows = []
    for start, end in edges:
        part = text[start:end]
        if part.strip():
            windows.append((start + len(part) - len(part.lstrip()), start + len(part.rstrip())))
    windows = windows or [(0, 0)]
    glued = [a[1] == b[0] for a, b in pairwise(windows)]
    layout = Layout.of(text, windows)
    joined, spans = layout.join([squeeze(text[start:end]) for start, end in windows], glued)
    assert joined == text
    assert [joined[start:end] for start, end in spans] == [
        word for start, end in windows for word in text[start:end].split()
    ]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.data())
def test_no_line_break_is_lost_or_moved_before_another_however_many_words_come_back(words, data):
    text = "\n".join(" ".join("ab" for _ in range(n + 1)) for n in words)
    layout = Layout.of(text, [(0, len(text))])
    decoded = " ".join("x" * data.draw(st.integers(0, 20)))
    joined, _ = layout.join([decoded], [])
    assert joined.count("\n") == len(words) - 1
    assert joined.split() == decoded.split()


def test_with_a_different_number_of_words_line_breaks_keep_their_relative_position():
    layout = Layout.of("a b\nc d", [(0, 7)])
    assert layout.join(["a b b2 b3 c d"], [])[0] == "a b b2\nb3 c d"
    assert layout.join(["a"], [])[0] == "a\n"


def test_a_line_break_stays_in_its_window():
    text = "a b c d e f\ng h"
    layout = Layout.of(text, [(0, 11), (12, 15)])
    assert layout.join(["a", "g h"], [False])[0] == "a\ng h"


def test_line_breaks_come_back_from_a_file(copier, tmp_path):
    nuggets = copier.encode([POEM, CORPUS[1], "\n\n".join(CORPUS[:3])])
    save_nuggets(tmp_path / "a.parquet", nuggets)
    _, again = load_nuggets(tmp_path / "a.parquet")
    assert [item.layout for item in again] == [item.layout for item in nuggets]
    assert copier.reconstruct(again) == [POEM, CORPUS[1], "\n\n".join(CORPUS[:3])]


def test_a_file_without_the_column_still_reads(copier, tmp_path):
    save_nuggets(tmp_path / "a.parquet", [copier.encode(POEM)])
    table = pq.read_table(tmp_path / "a.parquet")
    pq.write_table(table.drop_columns("layout"), tmp_path / "old.parquet")
    (_, (old,)) = load_nuggets(tmp_path / "old.parquet")
    assert old.layout == Layout()
    assert copier.reconstruct(old) == CORPUS[0]


def test_joined_nuggets_keep_the_layout_of_their_parts(copier):
    text = POEM.strip() + "\n" + CORPUS[1]
    first, second = copier.encode([POEM.strip(), CORPUS[1]])
    start = len(POEM.strip()) + 1
    moved = Nuggets(
        second.vectors, second.scores, second.positions, second.spans + start, second.tokens,
        second.windows + np.array([0, 0, start, start]), second.layout,
    )  # fmt: skip
    assert copier.reconstruct(Nuggets.concat([first, moved])) == text.replace(
        "\n" + CORPUS[1], " " + CORPUS[1]
    )


def test_a_layout_that_does_not_fit_is_refused(copier):
    nuggets = copier.encode(CORPUS[0])
    fields = (
        nuggets.vectors,
        nuggets.scores,
        nuggets.positions,
        nuggets.spans,
        nuggets.tokens,
        nuggets.windows,
    )
    with pytest.raises(InputError, match="a layout of 2 windows does not fit 1"):
        Nuggets(*fields, Layout((1, 2)))
    with pytest.raises(InputError, match="outside"):
        Nuggets(*fields, Layout((2,), ((3, "\n"),)))
