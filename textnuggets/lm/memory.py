"""What a language model remembers: for each past segment a few vectors and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class SegmentMemory(NamedTuple):
    """What is kept of one finished segment."""

    vectors: Tensor
    """`(k, d)` its nuggets."""
    scores: Tensor
    """`(k,)` theirs."""


class History(NamedTuple):
    """The memories of a batch's rows, padded: what cross-attention reads."""

    vectors: Tensor
    """`(batch, k_max, d)`, oldest first."""
    scores: Tensor
    """`(batch, k_max)`."""
    ages: Tensor
    """`(batch, k_max)` how many segments ago: 1 for the last one."""
    kept: Tensor
    """`(batch, k_max)` False on padding."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[SegmentMemory]]) -> History | None:
        """Rows of segments, oldest first; None if no row has any."""
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
                    torch.full((len(segment.scores),), len(row) - place, device=vectors.device)
                    for place, segment in enumerate(row)
                ]
            )
        lengths = torch.tensor(sizes, device=vectors.device)
        kept = torch.arange(longest, device=vectors.device) < lengths[:, None]
        return cls(vectors, scores, ages, kept)

    def rows(self, chosen: Tensor) -> History:
        """Some of the rows, without the padding that only others needed."""
        longest = int(self.kept[chosen].sum(1).max())
        return History(*(part[chosen][:, :longest] for part in self))
