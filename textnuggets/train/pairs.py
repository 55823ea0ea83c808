"""Training pairs for the contrastive objective, in batches with hard negatives.

A pair consists of two views of a document with some sentences removed, of a sentence and its document, or of the lead of an
article and another part of it. A batch of the first two kinds holds several documents of an article and of similar articles.
A batch of leads holds one pair from each of many similar articles, because every part of an article matches its lead.
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
)  # one is drawn for each pair of a batch of documents
LEADS = 0.3  # share of batches that hold leads
PER_RECORD = 6  # maximum documents of one article in a batch
NEAREST = 31  # similar articles to find for each article
LEFT_OUT = 0.3  # share of sentences removed from a view
DOCUMENT = "document_"  # prefix of the names of the document tensors


class Pair(NamedTuple):
    """Specification of a pair: its documents, kind and seed."""

    row: int
    """Row of the document."""
    partner: int
    """Row of the document that the query is made from: the same, or the lead of its article."""
    kind: Kind
    seed: int


class Records:
    """Documents of a corpus grouped by record, such as an article, and the nearest other records of each."""

    def __init__(self, corpus: PackedCorpus) -> None:
        numbers = corpus.records
        order = np.argsort(numbers, kind="stable")
        self.rows = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
        leads = [text for text, _ in corpus.texts([int(rows[0]) for rows in self.rows])]
        nearest = BM25(leads).nearest(leads, NEAREST + 1)
        self.nearest = [near[near != record] for record, near in enumerate(nearest)]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass
class PairBatches(NumberedBatches[Pair]):
    """Batches of pairs, each from an article and similar ones."""

    records: Records
    pairs: int

    def _batch(self, number: int) -> list[Pair]:
        epoch, index = divmod(number, len(self.records))
        first = int(np.random.default_rng([self.seed, epoch]).permutation(len(self.records))[index])
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


class ArticlePairs(Dataset[tuple[Example, Example]]):
    """Dataset of pairs: the query and the document as token ids."""

    def __init__(self, corpus: PackedCorpus, special_ids: Sequence[int]) -> None:
        self.corpus, self.special_ids, self.records = corpus, special_ids, Records(corpus)

    def __str__(self) -> str:
        return str(self.corpus)

    def batches(self, pairs: int, **division: int) -> PairBatches:
        """Return the batches of a run, of `pairs` pairs each."""
        return PairBatches(self.records, pairs, **division)

    def documents(self, count: int, seed: int) -> list[Example]:
        """Return a random sample of documents."""
        chosen = np.random.default_rng(seed).permutation(len(self.corpus))[:count]
        return [self.corpus[int(row)] for row in chosen]

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
            kept[chosen] = random.random() < 0.5  # so that not every query is contained in its document
            return self._only(document, starts, np.arange(count) == chosen), self._only(
                document, starts, kept
            )
        views = []
        for _ in range(2):
            kept = random.random(count) >= LEFT_OUT
            kept[random.integers(count)] = True  # keep at least one sentence
            views.append(self._only(document, starts, kept))
        return views[0], views[1]

    def _sentences(self, example: Example) -> np.ndarray:
        """Return the starts of the sentences and the end of the last one, excluding surrounding special tokens."""
        (ordinary,) = np.nonzero(~np.isin(example.input_ids, self.special_ids))
        if not len(ordinary):
            return np.array([0, len(example.input_ids)])
        ends = example.sentence_ends[example.sentence_ends < ordinary[-1]] + 1
        return np.array([ordinary[0], *ends, ordinary[-1] + 1])

    def _only(self, example: Example, starts: np.ndarray, kept: np.ndarray) -> Example:
        """Return a document with only the `kept` sentences."""
        tokens = np.ones(len(example.input_ids), dtype=bool)
        for start, end, keep in zip(starts[:-1], starts[1:], kept, strict=True):
            tokens[start:end] = keep
        positions = np.cumsum(tokens) - 1
        ends = positions[example.sentence_ends[tokens[example.sentence_ends]]]
        ids = example.input_ids[tokens]
        return Example(ids, ids, ends)


@dataclass
class PairCollator:
    """Collates pairs into padded tensors; names of document tensors start with `document_`."""

    collate: Collator

    def __call__(self, pairs: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
        """Return the tensors of both sides; further negatives of a pair follow the documents of all pairs."""
        queries, documents = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        negatives = [negative for pair in pairs for rest in pair[2:] for negative in rest]
        tensors = self.documents(queries)
        tensors |= {
            DOCUMENT + name: value for name, value in self.documents([*documents, *negatives]).items()
        }
        return tensors

    def documents(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Return the tensors of one side as `Collator` makes them, without labels."""
        return {name: value for name, value in self.collate(examples).items() if name != "labels"}
