"""Pairs of texts that belong together, in batches where telling them apart is hard.

A pair is two views of one document with sentences left out, a sentence and its document, or the lead of an article and
another part of it. A batch of documents holds several of an article and of articles like it; a batch of leads one pair of
each of many articles that are alike: every other part of an article would fit its lead, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from torch.utils.data import Dataset

from textnuggets.data.batching import Collator, NumberedBatches
from textnuggets.data.packed import Example, PackedCorpus
from textnuggets.search.bm25 import BM25

Kind = Literal["views", "sentence", "lead"]
KINDS: tuple[Kind, ...] = (
    "views",
    "sentence",
    "sentence",
)  # of a batch of documents, drawn with equal chances
LEADS = 0.3  # the share of batches that are leads and parts of their articles
PER_RECORD = 6  # documents of one article in a batch
NEAREST = 31  # articles that are known as like an article
LEFT_OUT = 0.3  # the share of sentences a view lacks
DOCUMENT = "document_"  # what the names of the second side's tensors begin with


class Pair(NamedTuple):
    """Which pair to make: of which document, how, and from which random numbers."""

    row: int
    partner: int
    """The document the query is made of: the same, or the lead of its article."""
    kind: Kind
    seed: int


class Records:
    """The documents of a corpus by the record, such as an article, they come from, and which records are alike."""

    def __init__(self, corpus: PackedCorpus) -> None:
        numbers = corpus.records
        order = np.argsort(numbers, kind="stable")
        self.rows = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
        leads = [text for text, _ in corpus.texts([int(rows[0]) for rows in self.rows])]
        nearest = BM25(leads).nearest(leads, NEAREST + 1)
        own = np.arange(len(leads))[:, None]
        self.nearest = [near[near != mine] for near, mine in zip(nearest, own, strict=True)]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass
class PairBatches(NumberedBatches[Pair]):
    """Batches of pairs, each of an article and those like it."""

    records: Records
    pairs: int
    steps: int
    seed: int
    accumulate: int = 1
    process: int = 0
    processes: int = 1

    def _batch(self, number: int) -> list[Pair]:
        done, place = divmod(number, len(self.records))
        first = int(np.random.default_rng([self.seed, done]).permutation(len(self.records))[place])
        random = np.random.default_rng([self.seed, 1, number])
        others = random.permutation(len(self.records))
        of_leads = random.random() < LEADS
        batch: list[Pair] = []
        seen: set[int] = set()
        for record in (first, *self.records.nearest[first], *others):
            if record in seen:
                continue
            seen.add(int(record))
            rows = self.records.rows[record]
            drawn: list[tuple[int, int, Kind]]
            if of_leads and len(rows) > 1:
                drawn = [(rows[random.integers(1, len(rows))], rows[0], "lead")]
            else:
                most = 1 if of_leads else min(len(rows), PER_RECORD, self.pairs - len(batch))
                chosen = random.choice(rows, most, replace=False)
                drawn = [(row, row, KINDS[random.integers(len(KINDS))]) for row in chosen]
            batch += [
                Pair(int(row), int(partner), kind, int(random.integers(2**31)))
                for row, partner, kind in drawn
            ]
            if len(batch) == self.pairs:
                break
        return batch


@dataclass
class Pairs(Dataset[tuple[Example, Example]]):
    """The texts of pairs, as token ids."""

    corpus: PackedCorpus
    special_ids: Sequence[int]

    def __getitem__(self, pair: Pair) -> tuple[Example, Example]:
        random = np.random.default_rng(pair.seed)
        document = self.corpus[pair.row]
        if pair.kind == "lead":
            return self.corpus[pair.partner], document
        starts = self._sentences(document)
        count = len(starts) - 1
        if pair.kind == "sentence" and count > 1:
            chosen = random.integers(count)
            kept = np.ones(count, dtype=bool)
            kept[chosen] = random.random() < 0.5  # a query is not always found word for word
            return self._only(document, starts, np.arange(count) == chosen), self._only(
                document, starts, kept
            )
        views = []
        for _ in range(2):
            kept = random.random(count) >= LEFT_OUT
            kept[random.integers(count)] = True  # something has to be left
            views.append(self._only(document, starts, kept))
        return views[0], views[1]

    def _sentences(self, example: Example) -> np.ndarray:
        """Where sentences begin, and where the last one ends; special tokens around them are in none."""
        (ordinary,) = np.nonzero(~np.isin(example.input_ids, self.special_ids))
        if not len(ordinary):
            return np.array([0, len(example.input_ids)])
        ends = example.sentence_ends[example.sentence_ends < ordinary[-1]] + 1
        return np.array([ordinary[0], *ends, ordinary[-1] + 1])

    def _only(self, example: Example, starts: np.ndarray, kept: np.ndarray) -> Example:
        """A document without some of its sentences."""
        tokens = np.ones(len(example.input_ids), dtype=bool)
        for start, end, keep in zip(starts[:-1], starts[1:], kept, strict=True):
            tokens[start:end] = keep
        place = np.cumsum(tokens) - 1
        ends = place[example.sentence_ends[tokens[example.sentence_ends]]]
        ids = example.input_ids[tokens]
        return Example(ids, ids, ends)


@dataclass
class PairCollator:
    """Pairs into padded tensors; the documents' names begin with `document_`."""

    collate: Collator

    def __call__(self, pairs: Sequence[tuple[Example, Example]]) -> dict[str, Any]:
        """Both sides as `Collator` makes them, without labels."""
        queries, documents = zip(*pairs, strict=True)
        made = self.collate(queries)
        made |= {DOCUMENT + name: value for name, value in self.collate(documents).items()}
        return {name: value for name, value in made.items() if not name.endswith("labels")}
