"""Shares of numbers and capitalized words that come back."""

from __future__ import annotations

import pytest

from textnuggets.evaluate.details import CAPITALIZED, NUMBER, share_kept


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (NUMBER, "In 1,024 of 3.5% at 12:30, on 1/2/1999, and 7.", ["1,024", "3.5", "12:30", "1/2/1999", "7"]),
        (CAPITALIZED, "Mr O'Neil and Éva met NATO-allies in X2.", ["Mr", "O'Neil", "Éva", "NATO-allies", "X2"]),
        (CAPITALIZED, "iPhone _Private 2Pac", []),
    ],
)  # fmt: skip
def test_numbers_and_capitalized_words_are_whole(pattern, text, matches):
    assert pattern.findall(text) == matches


def test_a_repeated_number_has_to_come_back_as_often():
    assert share_kept(NUMBER, ["5 and 6", "7"], ["5 and 5", "7"]) == pytest.approx(2 / 3)
    assert share_kept(NUMBER, ["1"], ["2"]) == 0


def test_matches_are_looked_for_in_the_same_document():
    assert share_kept(NUMBER, ["1", "2"], ["2", "1"]) == 0


def test_there_is_no_share_of_nothing():
    assert share_kept(CAPITALIZED, ["none"], ["none"]) is None
