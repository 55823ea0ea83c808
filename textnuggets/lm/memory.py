"""Memory of a language model: the nuggets and scores of past segments, alone and as padded batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class SegmentMemory(NamedTuple):
    """Nuggets of one finished segment."""

    vectors: Tensor
    """`(k, d)` nuggets."""
    scores: Tensor
    """`(k,)` scores of the nuggets."""


class History(NamedTuple):
    """Padded batch of memories, the input of cross-attention."""

    vectors: Tensor
    """`(batch, k_max, d)`, oldest first."""
    scores: Tensor
    """`(batch, k_max)`."""
    ages: Tensor
    """`(batch, k_max)` distance in segments: 1 for the previous segment."""
    kept: Tensor
    """`(batch, k_max)` mask, False on padding."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[SegmentMemory]]) -> History | None:
        """Return the batch of rows of segments, oldest first; None if all rows are empty."""
        sizes = [sum(len(segment.scores) for segment in row) for row in rows]
        longest = max(sizes, default=0)
        if not longest:
            return None
        example = next(segment for row in rows for segment in row)
        vectors = example.vectors.new_zeros(len(rows), longest, example.vectors.shape[-1])
        scores = example.scores.new_zeros(len(rows), longest)
        ages = torch.zeros(len(rows), longest, dtype=torch.long, device=vectors.device)
        for number, row in enumerate(rows):
            if not row:
                continue
            size = sizes[number]
            vectors[number, :size] = torch.cat([segment.vectors for segment in row])
            scores[number, :size] = torch.cat([segment.scores for segment in row])
            ages[number, :size] = torch.cat(
                [
                    torch.full((len(segment.scores),), len(row) - index, device=vectors.device)
                    for index, segment in enumerate(row)
                ]
            )
        lengths = torch.tensor(sizes, device=vectors.device)
        kept = torch.arange(longest, device=vectors.device) < lengths[:, None]
        return cls(vectors, scores, ages, kept)

    def rows(self, chosen: Tensor) -> History:
        """Return the chosen rows, padded only to the longest of them."""
        longest = int(self.kept[chosen].sum(1).max())
        return History(*(part[chosen][:, :longest] for part in self))
