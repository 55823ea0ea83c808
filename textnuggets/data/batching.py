"""Batches of packed documents: by token budget, of like lengths, in an order that a seed decides."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from textnuggets.data.packed import Example, PackedCorpus
from textnuggets.model.loss import IGNORED

Item = TypeVar("Item")
POOL = 64  # batches whose documents are sorted by length together


class NumberedBatches(Sampler[list[Item]]):
    """Batches for a whole run that are made from nothing but their number; processes take turns."""

    steps: int
    accumulate: int
    process: int
    processes: int

    def __len__(self) -> int:
        return self.steps * self.accumulate

    def __iter__(self) -> Iterator[list[Item]]:
        for number in range(len(self)):
            yield self._batch(number * self.processes + self.process)

    @abstractmethod
    def _batch(self, number: int) -> list[Item]:
        """The batch of a number."""


@dataclass
class TokenBatches(Sampler[list[int]]):
    """One process's share of every batch, for a whole run: `steps` updates of `accumulate` batches.

    A step takes in documents worth `budget * processes * accumulate` tokens, padding included, of like
    lengths; more only if it would hold fewer documents than there are shares. It holds the same documents
    however they are divided. Every document is seen once before one is seen again, in another order each
    time, but for a few in ten thousand that are too few for all shares and wait for the next time.

    A number stands for a document and how often it was seen before: `row + seen * len(lengths)`.
    """

    lengths: np.ndarray
    budget: int
    steps: int
    seed: int
    accumulate: int = 1
    process: int = 0
    processes: int = 1

    def __len__(self) -> int:
        return self.steps * self.accumulate

    def __iter__(self) -> Iterator[list[int]]:
        shares = self.processes * self.accumulate
        seen, done = 0, 0
        while done < self.steps:
            for rows in self._pass(seen, shares):
                for part in range(self.accumulate):
                    share = rows[part * self.processes + self.process :: shares]
                    yield [int(row) + seen * len(self.lengths) for row in share]
                done += 1
                if done == self.steps:
                    return
            seen += 1

    def _pass(self, seen: int, shares: int) -> list[np.ndarray]:
        """All documents once, as the batches of whole steps in random order."""
        random = np.random.default_rng([self.seed, seen])
        order = random.permutation(len(self.lengths))
        budget = self.budget * shares
        pool = max(1, int(POOL * budget / max(1.0, float(self.lengths.mean()))))
        batches: list[np.ndarray] = []
        for start in range(0, len(order), pool):
            part = order[start : start + pool]
            part = part[np.argsort(-self.lengths[part], kind="stable")]
            while len(part):
                fit = max(shares, budget // int(self.lengths[part[0]]))
                batches.append(part[:fit])
                part = part[fit:]
        shuffled = [batches[i] for i in random.permutation(len(batches))]
        # Every process needs a document; only the last batch of a pool can have too few.
        return [batch for batch in shuffled if len(batch) >= shares] or [np.resize(order, shares)]


@dataclass
class Documents(Dataset[Example]):
    """Packed documents as an objective wants them, by the numbers that `TokenBatches` gives out."""

    corpus: PackedCorpus
    delete: float
    """The share of source tokens to delete, other ones each time a document is seen."""
    special_ids: Sequence[int]
    """Tokens that are never deleted."""
    seed: int

    def __len__(self) -> int:
        return len(self.corpus)

    @cached_property
    def _special(self) -> np.ndarray:
        return np.array(sorted(self.special_ids))

    def __getitem__(self, number: int) -> Example:
        seen, row = divmod(number, len(self.corpus))
        example = self.corpus[row]
        if not self.delete:
            return example
        random = np.random.default_rng([self.seed, seen, row])
        (ordinary,) = np.nonzero(~np.isin(example.input_ids, self._special))
        deleted = ordinary[random.random(len(ordinary)) < self.delete]
        if len(deleted) == len(ordinary):  # of a short text, something has to be left
            deleted = deleted[1:]
        kept = np.ones(len(example.input_ids), dtype=bool)
        kept[deleted] = False
        place = np.cumsum(kept) - 1  # where a token moves to; a deleted one leaves its end to the one before
        ends = np.unique(place[example.sentence_ends])
        return Example(example.input_ids[kept], example.labels, ends[ends >= 0])


@dataclass
class Collator:
    """Examples into padded tensors."""

    pad_id: int

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        """`input_ids`, `attention_mask`, `labels` and `sentence_ends`, as `NuggetModel.forward` takes them."""
        inputs = _pad([example.input_ids for example in examples], self.pad_id)
        lengths = torch.tensor([len(example.input_ids) for example in examples])
        mask = torch.arange(inputs.shape[1]) < lengths[:, None]
        ends = torch.zeros_like(mask)
        for row, example in enumerate(examples):
            ends[row, torch.from_numpy(example.sentence_ends.astype(np.int64))] = True
        return {
            "input_ids": inputs,
            "attention_mask": mask.long(),
            "labels": _pad([example.labels for example in examples], IGNORED),
            "sentence_ends": ends,
        }


def _pad(rows: Sequence[np.ndarray], fill: int) -> Tensor:
    padded = np.full((len(rows), max(map(len, rows))), fill, dtype=np.int64)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(padded)
