"""Batches within a token budget."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from textnuggets.data.batching import Collator, Documents, TokenBatches
from textnuggets.data.packed import Example

lengths = st.lists(st.integers(2, 64), min_size=8, max_size=200).map(np.array)


def rows_of(batch, count):
    return [number % count for number in batch]


@given(lengths, st.integers(64, 300), st.integers(0, 5))
def test_no_batch_exceeds_its_budget_padding_included(lengths, budget, seed):
    for batch in TokenBatches(lengths, budget, steps=10, seed=seed):
        rows = rows_of(batch, len(lengths))
        assert len(rows) * lengths[rows].max() <= budget


@given(lengths, st.integers(0, 5))
def test_every_document_is_seen_once_before_one_is_seen_again(lengths, seed):
    numbers = [n for batch in TokenBatches(lengths, 64, steps=200, seed=seed) for n in batch]
    assert sorted(numbers[: len(lengths)]) == list(range(len(lengths)))


@given(lengths, st.integers(0, 5), st.sampled_from([(2, 1), (1, 2), (2, 2)]))
def test_processes_and_accumulated_batches_share_the_documents_of_one_large_batch(lengths, seed, division):
    processes, accumulate = division
    shares = processes * accumulate
    whole = [set(batch) for batch in TokenBatches(lengths, 64 * shares, steps=20, seed=seed)]
    whole = [batch for batch in whole if len(batch) >= shares]  # smaller remainders are dropped
    parts = [
        list(
            TokenBatches(
                lengths, 64, steps=20, seed=seed, accumulate=accumulate, process=process, processes=processes
            )
        )
        for process in range(processes)
    ]
    for step, expected in enumerate(whole):
        shared = [set(batch) for part in parts for batch in part[step * accumulate : (step + 1) * accumulate]]
        assert all(shared)
        assert set().union(*shared) == expected
        assert len(expected) == sum(map(len, shared))


@given(lengths)
def test_a_longer_run_starts_like_a_shorter_one(lengths):
    short, long = (list(TokenBatches(lengths, 100, steps=steps, seed=1)) for steps in (5, 9))
    assert long[:5] == short


def test_different_seeds_give_different_orders():
    lengths = np.full(100, 8)
    first, second = (list(TokenBatches(lengths, 64, steps=12, seed=seed)) for seed in (0, 1))
    assert first != second


def examples(count=50):
    random = np.random.default_rng(0)
    examples = []
    for _ in range(count):
        ids = random.integers(4, 90, random.integers(1, 30))
        ids = np.array([1, *ids, 2])
        examples.append(Example(ids, ids, np.array([len(ids) - 2])))
    return examples


def test_deleting_keeps_the_order_the_special_tokens_and_the_target():
    documents = Documents(examples(), 0.6, [0, 1, 2, 3], seed=0)
    kept = total = 0
    for number in range(50):
        example, whole = documents[number], documents.corpus[number]
        assert example.input_ids[0] == 1
        assert example.input_ids[-1] == 2
        assert len(example.input_ids) > 2
        left = iter(whole.input_ids.tolist())
        assert all(token in left for token in example.input_ids.tolist())  # a subsequence
        assert example.labels is whole.labels
        assert (example.sentence_ends < len(example.input_ids)).all()
        kept += len(example.input_ids) - 2
        total += len(whole.input_ids) - 2
    assert 0.3 < kept / total < 0.5


def test_deleted_tokens_change_with_the_epoch_and_are_otherwise_reproducible():
    documents = Documents(examples(), 0.6, [0, 1, 2, 3], seed=0)
    assert documents[7].input_ids.tolist() == documents[7].input_ids.tolist()
    assert any(documents[i].input_ids.tolist() != documents[i + 50].input_ids.tolist() for i in range(50))


def test_a_collated_batch_is_padded_and_masked():
    batch = Collator(pad_id=0)(
        [Example(np.array([1, 5, 2]), np.array([1, 2]), np.array([1])), examples(1)[0]]
    )
    assert batch["input_ids"].shape == batch["attention_mask"].shape == batch["sentence_ends"].shape
    assert batch["attention_mask"][0].sum() == 3
    assert (batch["input_ids"][0][3:] == 0).all()
    assert batch["labels"][0].tolist()[:3] == [1, 2, -100]
    assert batch["sentence_ends"][0].nonzero().tolist() == [[1]]
