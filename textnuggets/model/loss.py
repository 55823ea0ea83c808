"""Decoding loss (section 3.4), over the whole vocabulary or a sample of it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

IGNORED = -100  # label without a target


class SampledClasses(NamedTuple):
    """Subset of the vocabulary for a sampled softmax in one training step."""

    ids: Tensor
    """`(classes,)` vocabulary ids in ascending order, including every label of the batch."""
    correction: Tensor
    """`(classes,)` negative log-probability of sampling each id, 0 for labels of the batch. Adding it to the logits makes
    the softmax sum over the sample an unbiased estimate of the sum over the vocabulary."""

    def place(self, labels: Tensor) -> Tensor:
        """Return labels as indices into `ids`."""
        return torch.where(labels == IGNORED, IGNORED, torch.searchsorted(self.ids, labels.clamp(min=0)))


def sample_classes(labels: Tensor, vocabulary: int, count: int, generator: torch.Generator) -> SampledClasses:
    """Return the ids in `labels` and random other ids, `count` in total.

    Args:
        labels: `(batch, targets)`; -100 is ignored.
        vocabulary: Size of the vocabulary.
        count: Number of classes; exceeded if the batch alone has more.
        generator: Random generator on the CPU.
    """
    present = labels[labels != IGNORED].unique()
    others = torch.ones(vocabulary, dtype=torch.bool)
    others[present.cpu()] = False
    candidates = others.nonzero().squeeze(-1)
    draws = min(max(count - len(present), 0), len(candidates))
    drawn = candidates[torch.randperm(len(candidates), generator=generator)[:draws]].to(labels.device)
    ids, order = torch.cat([present, drawn]).sort()
    # Each candidate is drawn with probability draws / len(candidates).
    rarity = math.log(len(candidates) / draws) if draws else 0.0
    return SampledClasses(ids, torch.where(order < len(present), 0.0, rarity))


def decoding_loss(
    logits: Tensor,
    labels: Tensor,
    classes: SampledClasses | None = None,
    count: Tensor | int | None = None,
) -> Tensor:
    """Return the negative log-likelihood of the labels: the mean, or the sum divided by `count`.

    Args:
        logits: `(batch, targets, vocabulary or classes)`.
        labels: `(batch, targets)` vocabulary ids; -100 is ignored.
        classes: Classes of the logits, if not the whole vocabulary.
        count: Number of targets in all batches and processes of one step.
    """
    logits = logits.float()
    if classes is not None:
        logits, labels = logits + classes.correction, classes.place(labels)
    summed = functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return summed / ((labels != IGNORED).sum() if count is None else count)
