"""Batches of packed documents of similar length within a token budget, in seeded random order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

from textnuggets.data.packed import Example, PackedCorpus
from textnuggets.model.loss import IGNORED
from textnuggets.model.padding import pad

Item = TypeVar("Item")
POOL = 64  # batches whose documents are sorted by length together


@dataclass(kw_only=True)
class Batches(Sampler[list[Item]]):
    """One process's share of the batches of a whole run: `steps` updates of `accumulate` batches each."""

    steps: int
    seed: int
    accumulate: int = 1
    process: int = 0
    processes: int = 1

    def __len__(self) -> int:
        return self.steps * self.accumulate


class NumberedBatches(Batches[Item]):
    """Batches that are each determined by their number alone; numbers alternate between processes."""

    def __iter__(self) -> Iterator[list[Item]]:
        for number in range(len(self)):
            yield self._batch(number * self.processes + self.process)

    @abstractmethod
    def _batch(self, number: int) -> list[Item]:
        """Return the batch with this number."""


@dataclass
class TokenBatches(Batches[int]):
    """Batches of packed documents within a token budget.

    A step holds at most `budget * processes * accumulate` tokens, padding included, in documents of similar length;
    it exceeds that only to give each share one document. The documents of a step do not depend on how they are
    divided among processes and accumulated batches. Each epoch visits every document once in a new order, except
    for the few in ten thousand left over in batches too small for all shares.

    Batches hold numbers that encode the document and the epoch: `row + epoch * len(lengths)`.
    """

    lengths: np.ndarray
    budget: int

    def __iter__(self) -> Iterator[list[int]]:
        shares = self.processes * self.accumulate
        epoch, done = 0, 0
        while done < self.steps:
            for rows in self._pass(epoch, shares):
                for part in range(self.accumulate):
                    share = rows[part * self.processes + self.process :: shares]
                    yield [int(row) + epoch * len(self.lengths) for row in share]
                done += 1
                if done == self.steps:
                    return
            epoch += 1

    def _pass(self, epoch: int, shares: int) -> list[np.ndarray]:
        """Return the batches of whole steps of one epoch, in random order."""
        random = np.random.default_rng([self.seed, epoch])
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
        # Every share needs a document; only the last batch of a pool can have too few.
        return [batch for batch in shuffled if len(batch) >= shares] or [np.resize(order, shares)]


@dataclass
class Documents(Dataset[Example]):
    """Packed documents with tokens deleted, indexed by the numbers of `TokenBatches`."""

    corpus: PackedCorpus
    delete: float
    """Share of source tokens to delete; different ones in each epoch."""
    special_ids: Sequence[int]
    """Ids of tokens that are never deleted."""
    seed: int

    def __len__(self) -> int:
        return len(self.corpus)

    @cached_property
    def _special(self) -> np.ndarray:
        return np.array(sorted(self.special_ids))

    def __getitem__(self, number: int) -> Example:
        epoch, row = divmod(number, len(self.corpus))
        example = self.corpus[row]
        if not self.delete:
            return example
        random = np.random.default_rng([self.seed, epoch, row])
        (ordinary,) = np.nonzero(~np.isin(example.input_ids, self._special))
        deleted = ordinary[random.random(len(ordinary)) < self.delete]
        if len(deleted) == len(ordinary):  # keep at least one token of a short text
            deleted = deleted[1:]
        kept = np.ones(len(example.input_ids), dtype=bool)
        kept[deleted] = False
        # New index of each token; a deleted token gets the index of the last kept one before it.
        position = np.cumsum(kept) - 1
        ends = np.unique(position[example.sentence_ends])
        return Example(example.input_ids[kept], example.labels, ends[ends >= 0])


@dataclass
class Collator:
    """Collation of examples into padded tensors."""

    pad_id: int

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Return `input_ids`, `attention_mask`, `labels` and `sentence_ends` for `NuggetModel.forward`."""
        inputs, mask = pad([example.input_ids for example in examples], self.pad_id)
        labels, _ = pad([example.labels for example in examples], IGNORED)
        ends = torch.zeros_like(mask)
        for row, example in enumerate(examples):
            ends[row, torch.from_numpy(example.sentence_ends.astype(np.int64))] = True
        return {
            "input_ids": inputs,
            "attention_mask": mask.long(),
            "labels": labels,
            "sentence_ends": ends,
        }
