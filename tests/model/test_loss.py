"""Decoding loss over the whole vocabulary and over a sample."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.tiny import DECODERS, tiny_batch, tiny_model
from textnuggets.model.loss import decoding_loss, sample_classes

VOCABULARY = 40


def labels():
    torch.manual_seed(0)
    found = torch.randint(0, VOCABULARY, (3, 7))
    found[0, 4:] = -100
    return found


def test_the_loss_is_the_mean_over_targets_or_the_sum_over_a_count():
    logits, targets = torch.randn(3, 7, VOCABULARY), labels()
    expected = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    torch.testing.assert_close(decoding_loss(logits, targets), expected)
    count = int((targets != -100).sum())
    torch.testing.assert_close(decoding_loss(logits, targets, count=2 * count), expected / 2)


def test_a_sample_holds_every_label_once_and_random_others():
    targets = labels()
    classes = sample_classes(targets, VOCABULARY, 30, torch.Generator().manual_seed(0))
    own = targets[targets != -100].unique()
    assert torch.isin(own, classes.ids).all()
    assert len(classes.ids) == len(classes.ids.unique()) == 30
    assert (classes.ids.diff() > 0).all()
    placed = classes.place(targets)
    assert (placed == -100).equal(targets == -100)
    assert classes.ids[placed[placed >= 0]].equal(targets[targets >= 0])


def test_a_sample_of_everything_gives_the_exact_loss():
    logits, targets = torch.randn(3, 7, VOCABULARY), labels()
    classes = sample_classes(targets, VOCABULARY, VOCABULARY, torch.Generator())
    assert classes.correction.abs().max() == 0
    sampled = decoding_loss(logits[..., classes.ids], targets, classes)
    torch.testing.assert_close(sampled, decoding_loss(logits, targets))


def test_the_sum_over_a_sample_estimates_the_sum_over_the_vocabulary_without_bias():
    logits, targets = torch.randn(VOCABULARY).double(), labels()
    generator = torch.Generator().manual_seed(0)
    estimates = []
    for _ in range(4000):
        classes = sample_classes(targets, VOCABULARY, 25, generator)
        estimates.append((logits[classes.ids] + classes.correction).exp().sum())
    assert float(torch.stack(estimates).mean()) == pytest.approx(float(logits.exp().sum()), rel=0.01)


def test_a_batch_with_more_labels_than_the_count_keeps_them_all():
    targets = torch.arange(VOCABULARY)[None]
    assert len(sample_classes(targets, VOCABULARY, 5, torch.Generator()).ids) == VOCABULARY


@pytest.mark.parametrize("family", DECODERS)
def test_decoding_into_some_classes_gives_their_logits(family):
    model, batch = tiny_model(family), tiny_batch()
    classes = sample_classes(batch["labels"], len(model.tokenizer), 60, torch.Generator())
    with torch.no_grad():
        whole, some = model(**batch), model(**batch, classes=classes)
    torch.testing.assert_close(some.logits, whole.logits[..., classes.ids])


@pytest.mark.parametrize("family", DECODERS)
def test_loss_and_logits_are_those_of_transformers(family):
    """With every token a nugget and no bias, the model is equivalent to its backbone."""
    model, batch = tiny_model(family, selector="all_tokens", residual="off"), tiny_batch()
    with torch.no_grad():
        ours, theirs = model(**batch), model.backbone(**batch)
    torch.testing.assert_close(ours.logits, theirs.logits)
    torch.testing.assert_close(ours.loss, theirs.loss)
