"""Packing sentences into documents."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from textnuggets.data.packing import Row, join_sides, pack

counts = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=60)


def rows(tokens):
    return [Row((f"s{i}", f"t{i}"), pair) for i, pair in enumerate(tokens)]


@given(counts, st.integers(1, 50))
def test_every_row_is_in_one_group_in_order_and_both_sides_in_step(tokens, limit):
    groups = list(pack(rows(tokens), limit))
    assert [row for group in groups for row in group] == rows(tokens)


@given(counts, st.integers(1, 50))
def test_a_group_exceeds_the_limit_only_if_it_is_one_sentence(tokens, limit):
    for group in pack(rows(tokens), limit):
        longest = max(sum(row.tokens[side] for row in group) for side in (0, 1))
        assert longest <= limit or len(group) == 1


@given(counts, st.integers(1, 50))
def test_a_group_ends_only_where_the_next_sentence_would_not_fit(tokens, limit):
    groups = list(pack(rows(tokens), limit))
    for group, after in pairwise(groups):
        with_next = [sum(row.tokens[side] for row in [*group, after[0]]) for side in (0, 1)]
        assert max(with_next) > limit


def test_each_side_is_joined_with_its_own_joiner():
    group = [Row(("One.", "一。"), (2, 2)), Row(("Two.", "二。"), (2, 2))]
    assert join_sides(group, (" ", "")) == ("One. Two.", "一。二。")
