"""The loss of decoding (section 3.4), over the whole vocabulary or a sample of it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

IGNORED = -100  # a label that does not count


class SampledClasses(NamedTuple):
    """The part of the vocabulary that one training step decides between."""

    ids: Tensor
    """`(classes,)` ascending vocabulary ids, every label of the batch among them."""
    correction: Tensor
    """`(classes,)` minus the log-probability of an id to be in the sample: 0 for the batch's own. Added
    to the logits, it makes the sum over the sample an unbiased estimate of that over the vocabulary."""

    def place(self, labels: Tensor) -> Tensor:
        """Labels as indexes into `ids`."""
        return torch.where(labels == IGNORED, IGNORED, torch.searchsorted(self.ids, labels.clamp(min=0)))


def sample_classes(labels: Tensor, vocabulary: int, count: int, generator: torch.Generator) -> SampledClasses:
    """The ids that occur in `labels`, and random others to make `count`.

    Args:
        labels: `(batch, targets)`; -100 does not count.
        vocabulary: How many ids there are.
        count: How many classes are wanted; more if the batch alone has more.
        generator: Where the random ids come from, on the CPU.
    """
    own = labels[labels != IGNORED].unique()
    others = torch.ones(vocabulary, dtype=torch.bool)
    others[own.cpu()] = False
    candidates = others.nonzero().squeeze(-1)
    wanted = min(max(count - len(own), 0), len(candidates))
    drawn = candidates[torch.randperm(len(candidates), generator=generator)[:wanted]].to(labels.device)
    ids, order = torch.cat([own, drawn]).sort()
    # Each of the others is drawn with the probability wanted / candidates.
    rarity = math.log(len(candidates) / wanted) if wanted else 0.0
    return SampledClasses(ids, torch.where(order < len(own), 0.0, rarity))


def decoding_loss(
    logits: Tensor,
    labels: Tensor,
    classes: SampledClasses | None = None,
    count: Tensor | int | None = None,
) -> Tensor:
    """Negative log-likelihood of the labels: their mean, or their sum divided by `count`.

    Args:
        logits: `(batch, targets, vocabulary or classes)`.
        labels: `(batch, targets)` vocabulary ids; -100 does not count.
        classes: What the logits stand for, if not the whole vocabulary.
        count: The number of targets of all batches and processes that make one step.
    """
    logits = logits.float()
    if classes is not None:
        logits, labels = logits + classes.correction, classes.place(labels)
    summed = functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return summed / ((labels != IGNORED).sum() if count is None else count)
