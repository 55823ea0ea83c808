"""Teacher-forced loss and accuracy of a model on packed documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from textnuggets.data.batching import Collator
from textnuggets.data.packed import PackedCorpus
from textnuggets.model.loss import IGNORED


class TeacherForced(NamedTuple):
    """Sums over documents; divide by `targets` for the mean per token."""

    loss: Tensor
    correct: Tensor
    targets: Tensor

    @classmethod
    def of(
        cls,
        model: Any,
        corpus: PackedCorpus,
        rows: Sequence[int],
        size: dict[str, Any],
        collate: Collator,
        budget: int,
    ) -> TeacherForced:
        """Evaluate a model on documents in batches of `budget` tokens; the sums do not depend on batching.

        Args:
            model: Nugget model in evaluation mode.
            corpus: Packed documents.
            rows: Indices of the documents to evaluate.
            size: `ratio` or `max_vectors`, passed to `NuggetModel.forward`.
            collate: Collator of examples into batches.
            budget: Maximum number of tokens per batch, padding included.
        """
        device = next(model.parameters()).device
        totals = torch.zeros(3, device=device)
        with torch.no_grad():
            for part in _by_length(corpus, rows, budget):
                batch = {
                    key: value.to(device) for key, value in collate([corpus[row] for row in part]).items()
                }
                output = model(**batch, **size, num_items_in_batch=1)
                counted = batch["labels"] != IGNORED
                correct = (output.logits.argmax(-1) == batch["labels"])[counted].sum()
                totals += torch.stack([output.loss.float(), correct.float(), counted.sum().float()])
        return cls(*totals)


def _by_length(corpus: PackedCorpus, rows: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield batches of documents of similar length."""
    left = sorted(rows, key=lambda row: -int(corpus.lengths[row]))
    while left:
        fit = max(1, budget // int(corpus.lengths[left[0]]))
        yield left[:fit]
        left = left[fit:]
