"""Number and choice of the selected tokens."""

from __future__ import annotations

import pickle
from dataclasses import replace
from fractions import Fraction
from math import ceil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.tiny import tiny_batch, tiny_model, tiny_tokenizer
from textnuggets.errors import ConfigError, InputError
from textnuggets.model.budget import nugget_count
from textnuggets.model.selection import SELECTORS, Candidates, Selection, get_selector, select_topk, selector


def candidates(lengths: list[int], count: list[int], **marks: list[list[int]]) -> Candidates:
    n = max(lengths)
    mask = torch.arange(n) < torch.tensor(lengths)[:, None]
    nothing = torch.zeros_like(mask)

    def marked(name: str) -> torch.Tensor:
        mark = nothing.clone()
        for row, positions in enumerate(marks.get(name, [])):
            mark[row, positions] = True
        return mark

    return Candidates(
        scores=torch.zeros(mask.shape),
        mask=mask,
        count=torch.tensor(count),
        punctuation=marked("punctuation"),
        sentence_ends=marked("sentence_ends"),
        content=torch.ones(mask.shape),
    )


def chosen(selection: Selection) -> list[list[int]]:
    return [row[kept].tolist() for row, kept in zip(selection.positions, selection.kept, strict=True)]


def test_the_count_is_the_exact_ceiling_for_every_length_and_ratio():
    n = torch.arange(1, 5001)
    for hundredths in range(1, 101):
        exact = [ceil(Fraction(length * hundredths, 100)) for length in n.tolist()]
        assert nugget_count(n, hundredths / 100).tolist() == exact


@given(n=st.integers(1, 5000), parts=st.integers(1, 5000))
def test_a_ratio_that_is_a_fraction_of_n_gives_that_many(n, parts):
    assert nugget_count(n, min(1.0, parts / n)) == min(parts, n)


def test_an_int_and_a_tensor_count_alike():
    assert nugget_count(100, 0.15) == 15 == int(nugget_count(torch.tensor([100]), 0.15))
    assert nugget_count(3, 0.01) == 1


@given(
    scores=st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=12), min_size=1, max_size=4),
    ratio=st.sampled_from([0.05, 0.1, 0.25, 0.5, 1.0]),
)
def test_topk_takes_the_best_real_tokens_in_reading_order_and_ties_go_to_the_earlier(scores, ratio):
    n = max(map(len, scores))
    mask = torch.tensor([[True] * len(row) + [False] * (n - len(row)) for row in scores])
    # Padding has the highest score, but must not be selected.
    padded = torch.tensor([[float(s) for s in row] + [99.0] * (n - len(row)) for row in scores])
    found = select_topk(padded, mask, nugget_count(mask.sum(-1), ratio))
    for row, positions in zip(scores, chosen(found), strict=True):
        k = nugget_count(len(row), ratio)
        best = sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]
        assert positions == sorted(best)


def test_marks_are_exactly_the_kept_positions():
    selection = select_topk(
        torch.tensor([[1.0, 5, 2, 3], [9, 0, 0, 0]]),
        torch.tensor([[True] * 4, [True, False, False, False]]),
        torch.tensor([3, 3]),
    )
    assert selection.marks(4).tolist() == [[False, True, True, True], [True, False, False, False]]


def test_no_gradient_flows_through_the_choice():
    model = tiny_model(residual="off")
    batch = tiny_batch()
    seen = []
    original = get_selector("learned")
    model.selector = replace(original, function=lambda c: seen.append(c.scores.requires_grad) or original(c))
    model(**batch).loss.backward()
    assert seen == [False]


def test_chunking_takes_the_last_punctuation_of_each_chunk_else_its_last_token():
    # Ten tokens in two chunks; the first has commas at 1 and 3, the second none.
    assert chosen(SELECTORS["chunking"](candidates([10], [2], punctuation=[[1, 3]]))) == [[3, 9]]


def test_chunking_pads_shorter_texts_and_never_looks_at_padding():
    found = SELECTORS["chunking"](candidates([8, 3], [4, 1], punctuation=[[0], [6]]))
    assert chosen(found) == [[0, 3, 5, 7], [2]]


@given(n=st.integers(1, 40), k=st.integers(1, 40), data=st.data())
def test_chunking_gives_one_token_per_chunk(n, k, data):
    commas = data.draw(st.lists(st.integers(0, n - 1), unique=True))
    (positions,) = chosen(SELECTORS["chunking"](candidates([n], [k], punctuation=[commas])))
    k = min(n, k)
    assert [p * k // n for p in positions] == list(range(k))


@given(n=st.integers(1, 40), k=st.integers(1, 40), seed=st.integers(0, 10))
def test_spread_takes_the_best_token_of_every_chunk(n, k, seed):
    made = candidates([n], [k])
    scores = torch.randn(made.scores.shape, generator=torch.Generator().manual_seed(seed))
    (positions,) = chosen(SELECTORS["spread"](replace(made, scores=scores)))
    k = min(n, k)
    for chunk, position in enumerate(positions):
        members = [i for i in range(n) if i * k // n == chunk]
        assert position == max(members, key=lambda i: scores[0, i])
    assert len(positions) == k


def test_spread_never_looks_at_padding():
    made = candidates([8, 3], [4, 1])
    found = SELECTORS["spread"](replace(made, scores=torch.arange(8.0).expand(2, -1)))
    assert chosen(found) == [[1, 3, 5, 7], [2]]


@given(n=st.integers(1, 60), k=st.integers(1, 60), seed=st.integers(0, 999))
def test_even_content_ends_k_chunks_that_leave_no_token_out(n, k, seed):
    k = min(n, k)
    made = candidates([n, 1], [k, 1])
    content = torch.rand(made.mask.shape, generator=torch.Generator().manual_seed(seed)) ** 4 * 14 + 2
    (first, second) = chosen(SELECTORS["even_content"](replace(made, content=content)))
    assert len(first) == k
    assert first == sorted(set(first))
    assert first[-1] == n - 1
    assert second == [0]


def test_even_ends_k_equal_chunks():
    made = candidates([12, 5], [4, 2])
    assert chosen(SELECTORS["even"](made)) == [[2, 5, 8, 11], [2, 4]]


def test_even_content_gives_more_nuggets_to_what_carries_more():
    made = candidates([12], [4])
    assert chosen(SELECTORS["even_content"](made)) == [[2, 5, 8, 11]]
    heavy = torch.tensor([[1.0] * 8 + [9.0] * 4])
    assert chosen(SELECTORS["even_content"](replace(made, content=heavy))) == [[4, 8, 9, 11]]


def test_sentence_boundaries_ignore_the_count_and_fall_back_to_the_last_token():
    found = SELECTORS["sentence_boundary"](candidates([6, 4], [1, 1], sentence_ends=[[2, 5], []]))
    assert chosen(found) == [[2, 5], [3]]


def test_all_tokens_keeps_every_real_token():
    assert chosen(SELECTORS["all_tokens"](candidates([3, 2], [1, 1]))) == [[0, 1, 2], [0, 1]]


def test_mean_keeps_one_vector_for_the_whole_text():
    assert chosen(SELECTORS["mean"](candidates([3, 2], [1, 1]))) == [[2], [1]]


def test_a_new_selector_is_one_registered_function():
    @selector
    def first_token(c: Candidates) -> Selection:
        return Selection(
            torch.zeros(len(c.mask), 1, dtype=torch.long), torch.ones(len(c.mask), 1, dtype=torch.bool)
        )

    try:
        model = tiny_model(selector="first_token")
        (nuggets,) = model.encode(["The cat sat."])
        assert nuggets.positions.tolist() == [0]
        assert model.scorer is None
        assert model.selector.counts
    finally:
        del SELECTORS["first_token"]


def test_a_selector_declares_what_it_needs():
    @selector(learned=True, needs_sentence_ends=True)
    def best_sentence_ends(c: Candidates) -> Selection:
        return select_topk(c.scores + 1000.0 * c.sentence_ends, c.mask, c.count)

    try:
        model = tiny_model(selector="best_sentence_ends", ratio=0.05)
        assert model.scorer is not None
        with pytest.raises(InputError, match="'best_sentence_ends' needs sentence_ends"):
            model(**tiny_batch())
        assert model.encode("The cat sat. Rain fell.", max_vectors=2).tokens == (".", ".")
    finally:
        del SELECTORS["best_sentence_ends"]


def test_a_model_with_its_selector_can_be_pickled():
    model = pickle.loads(pickle.dumps(tiny_model(selector="spread")))
    assert model.selector == get_selector("spread")


def test_an_unknown_selector_is_named_with_the_known_ones():
    with pytest.raises(ConfigError, match=rf"{', '.join(SELECTORS)}; got 'random'"):
        tiny_model(selector="random")


@pytest.mark.parametrize("name", sorted(SELECTORS))
def test_every_selector_trains_and_encodes(name):
    model = tiny_model(selector=name)
    batch = tiny_batch()
    if name == "sentence_boundary":
        with pytest.raises(InputError, match="needs sentence_ends"):
            model(**batch)
        batch["sentence_ends"] = batch["input_ids"] == tiny_tokenizer().convert_tokens_to_ids(".")
    model(**batch).loss.backward()
    text = "The cat sat on the mat, and the dog lay by the door. Rain fell."
    (nuggets,) = model.encode([text])
    n = len(tiny_tokenizer()(text).input_ids)
    expected = {"sentence_boundary": 2, "all_tokens": n, "mean": 1}.get(name, nugget_count(n, 0.25))
    assert len(nuggets) == expected
    if name == "sentence_boundary":
        assert nuggets.tokens == (".", ".")
    if name == "mean":
        assert nuggets.spans.tolist() == [[0, len(text)]]
    if name == "chunking":
        assert "," in nuggets.tokens
