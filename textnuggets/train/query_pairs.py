"""Training pairs from files of queries and the documents that answer them.

    {"query": "...", "positive": "...", "negatives": ["...", ...]}

`negatives` is optional. A batch holds random queries of one file, each with its document, and the pairs whose documents
BM25 finds for these queries: their documents are hard negatives, and all documents of a batch are compared with all its
queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import Dataset

from textnuggets.data.batching import NumberedBatches
from textnuggets.data.packed import Example
from textnuggets.errors import InputError
from textnuggets.io.corpora import read_records
from textnuggets.io.documents import is_unicode
from textnuggets.search.bm25 import BM25

NEIGHBOURS = 3  # pairs with similar documents that accompany each random pair of a batch
SEARCHED = 24  # documents that BM25 finds for a query, from which the neighbours come


class QueryPair(NamedTuple):
    """A query with the document that answers it and further documents that do not, as token ids."""

    query: Example
    document: Example
    negatives: list[Example]


class Numbers(NamedTuple):
    """A pair as indices of texts."""

    query: int
    document: int
    negatives: tuple[int, ...]


@dataclass
class QueryFile:
    """Pairs of one file."""

    texts: list[str]
    pairs: list[Numbers]

    @cached_property
    def pair_of(self) -> dict[int, int]:
        """Index of the first pair of each document."""
        return {pair.document: number for number, pair in reversed(list(enumerate(self.pairs)))}

    @cached_property
    def search(self) -> BM25:
        """BM25 index of the documents, in the order of `pair_of`."""
        return BM25([self.texts[document] for document in self.pair_of])

    def neighbours(self, numbers: Sequence[int]) -> list[list[int]]:
        """Return the pairs whose documents are nearest to the query of each given pair, best first."""
        found = self.search.nearest([self.texts[self.pairs[i].query] for i in numbers], SEARCHED)
        owners = list(self.pair_of.values())
        return [[owners[document] for document in row] for row in found]


@dataclass
class QueryPairs(Dataset[QueryPair]):
    """Pairs of several files; an item is the index of a file and of a pair in it."""

    files: list[QueryFile]
    tokenize: Any
    max_tokens: int

    def __len__(self) -> int:
        return sum(len(file.pairs) for file in self.files)

    def __str__(self) -> str:
        documents = sum(len(file.pair_of) for file in self.files)
        return f"{len(self):,} queries, {documents:,} documents"

    def __getitem__(self, item: tuple[int, int]) -> QueryPair:
        file = self.files[item[0]]
        query, document, negatives = file.pairs[item[1]]
        first, second, *rest = self._examples([file.texts[i] for i in (query, document, *negatives)])
        return QueryPair(first, second, rest)

    def documents(self, count: int, seed: int) -> list[Example]:
        """Return a random sample of documents of all files."""
        texts = [file.texts[document] for file in self.files for document in file.pair_of]
        chosen = np.random.default_rng(seed).permutation(len(texts))[:count]
        return self._examples([texts[i] for i in chosen])

    def _examples(self, texts: Sequence[str]) -> list[Example]:
        """Tokenize texts; what exceeds `max_tokens` is cut off."""
        encoded = self.tokenize(list(texts), truncation=True, max_length=self.max_tokens)["input_ids"]
        arrays = [np.array(ids, dtype=np.int32) for ids in encoded]
        return [Example(ids, ids, np.array([len(ids) - 1])) for ids in arrays]

    def batches(self, pairs: int, **division: int) -> QueryBatches:
        """Return the batches of a run, of `pairs` pairs each."""
        return QueryBatches(self, pairs, **division)


@dataclass
class QueryBatches(NumberedBatches[tuple[int, int]]):
    """Batches of pairs of one file: random ones, and those whose documents are similar to their queries."""

    source: QueryPairs
    pairs: int

    def _batch(self, number: int) -> list[tuple[int, int]]:
        random = np.random.default_rng([self.seed, number])
        sizes = np.array([len(file.pairs) for file in self.source.files])
        chosen = int(random.choice(len(sizes), p=sizes / sizes.sum()))
        file = self.source.files[chosen]
        order = random.permutation(len(file.pairs)).tolist()
        batch: dict[int, int] = {}  # document -> pair: no document is in a batch twice
        for start in range(0, len(order), self.pairs):
            firsts = order[start : start + self.pairs // (NEIGHBOURS + 1) + 1]
            for first, near in zip(firsts, file.neighbours(firsts), strict=True):
                batch.setdefault(file.pairs[first].document, first)
                others = (pair for pair in near if file.pairs[pair].document not in batch)
                for pair in islice(others, NEIGHBOURS):
                    batch[file.pairs[pair].document] = pair
            if len(batch) >= self.pairs:
                break
        return [(chosen, pair) for pair in list(batch.values())[: self.pairs]]


def has_queries(sources: Sequence[str]) -> bool:
    """Return whether corpora consist of queries and documents, judged by the first record of each.

    Raises:
        InputError: If some do and others do not.
    """
    found = [
        any("query" in record.fields for record in islice(read_records([source]), 1)) for source in sources
    ]
    if any(found) and not all(found):
        raise InputError(
            f"{sources[found.index(False)]}: has no field 'query', but {sources[found.index(True)]} has: name files of "
            f"one kind."
        )
    return all(found)


def load_pairs(sources: Sequence[str], tokenize: Any, max_tokens: int) -> QueryPairs:
    """Read the pairs of corpora."""
    return QueryPairs([_read_file(source) for source in sources], tokenize, max_tokens)


def _read_file(source: str) -> QueryFile:
    numbers: dict[str, int] = {}
    pairs: list[Numbers] = []
    for place, fields in read_records([source]):
        given = fields.get("negatives") or []
        texts = [
            fields.get("query"),
            fields.get("positive"),
            *(given if isinstance(given, list) else [given]),
        ]
        for text in texts:
            if not isinstance(text, str) or not text.strip() or not is_unicode(text):
                raise InputError(
                    f"{place}: a pair needs the texts 'query' and 'positive', and 'negatives' as a list of texts; got "
                    f"{str(text)[:80]!r}."
                )
        query, document, *rest = [numbers.setdefault(text, len(numbers)) for text in texts]
        pairs.append(Numbers(query, document, tuple(rest)))
    if len({pair.document for pair in pairs}) < 2:
        raise InputError(f"{source}: has fewer than two different documents, so there are no negatives.")
    return QueryFile(list(numbers), pairs)
