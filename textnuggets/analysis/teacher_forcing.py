"""How well a model decodes packed documents when the right tokens before each are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from textnuggets.data.batching import Collator
from textnuggets.data.packed import PackedCorpus
from textnuggets.model.loss import IGNORED


class TeacherForced(NamedTuple):
    """Sums over documents; divide by `targets`."""

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
        """Run a model in evaluation mode over some documents, `budget` tokens at a time; exact.

        `size` is the `ratio` or the `max_vectors` that `NuggetModel.forward` takes.
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
    left = sorted(rows, key=lambda row: -int(corpus.lengths[row]))
    while left:
        fit = max(1, budget // int(corpus.lengths[left[0]]))
        yield left[:fit]
        left = left[fit:]
