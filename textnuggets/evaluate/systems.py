"""Retrieval systems by name: `bm25`, or `[LABEL=]MODEL[:METHOD][@RATIO[/QUERY_RATIO]]`.

    bm25                         BM25 over words
    search                       nuggets of a model, at its own ratio
    search@0.05                  nuggets at another ratio
    search@0.05/0.5              nuggets at another ratio, and a separate ratio for queries
    all-MiniLM-L6-v2:all         every token of an encoder
    all-MiniLM-L6-v2:bits        every token of an encoder, one bit for each dimension
    all-MiniLM-L6-v2:ward@0.1    as many vectors as nuggets at that ratio, by a rule
    all-MiniLM-L6-v2:passages@99 one vector for each passage of at most 99 words
    all-MiniLM-L6-v2:passages    the same, with as many bytes as the nuggets named first
    mine=runs/3/best             a model with the label 'mine'

METHOD is one of `pooling_baselines.REDUCTIONS`, `passages`, or `chunking` or `sentences` (the two rules of the paper).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textnuggets.checks import check_ratio
from textnuggets.errors import InputError
from textnuggets.evaluate.pooling_baselines import (
    PRECISIONS,
    REDUCTIONS,
    bytes_of_vector,
    count_words,
    mean,
    split_words,
    words_per_passage,
)
from textnuggets.io.progress import Progress
from textnuggets.model.budget import Budget, nugget_count
from textnuggets.model.encoding import as_dtype, encode_stream
from textnuggets.model.fingerprint import SETTINGS, fingerprint
from textnuggets.model.interface import TextInterface
from textnuggets.model.maxsim import Similarity, unit
from textnuggets.model.nuggets import Nuggets
from textnuggets.model.selection import get_selector
from textnuggets.model.token_encoder import load_token_encoder
from textnuggets.onnx.load import load_encoder
from textnuggets.search.bm25 import BM25
from textnuggets.search.manifest import default_dtype

BATCH = 32  # windows encoded together
PASSAGES = "passages"
WITHOUT_RATIO = ("all", "bits", "mean", "sentences", PASSAGES)
OTHERS = "float16"  # dtype of vectors that are not nuggets; token and passage indexes usually store these
RULES = {"chunking": "chunking", "sentences": "sentence_boundary"}  # method -> selector

Scores = Callable[
    [int, Sequence[int]], NDArray[np.float32]
]  # index of a query, indices of documents -> scores


class System(ABC):
    """A retrieval system, which scores documents for a query."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.vectors: float | None = None
        """Mean number of vectors per document; None before `read`, and for BM25."""
        self.bytes: float | None = None
        """Mean number of stored bytes per document, of vectors or of BM25's scores; None before `read`."""

    def prepare(self, documents: Sequence[str], size: float | None) -> None:  # noqa: B027
        """Choose settings that depend on the documents; does nothing by default.

        Args:
            documents: Documents that `read` will read.
            size: Mean number of bytes per document of the system to equal; None if there is none.
        """

    @abstractmethod
    def read(self, queries: Sequence[str], documents: Sequence[str]) -> Scores:
        """Read the texts and return a function that scores documents for a query, by index."""

    def describe(self) -> dict[str, Any]:
        """Return the weights and settings of the system."""
        return {}


class Words(System):
    """BM25 over the documents."""

    def read(self, queries: Sequence[str], documents: Sequence[str]) -> Scores:
        """Index the documents."""
        engine = BM25(documents)
        self.bytes = engine.nbytes / len(documents)

        def scores(query: int, chosen: Sequence[int]) -> NDArray[np.float32]:
            return engine.scores(queries[query])[np.asarray(chosen)]

        return scores

    def describe(self) -> dict[str, Any]:
        """Return the method."""
        return {"method": "bm25"}


class Vectors(System):
    """Vectors of a model, compared by a similarity; those of documents have the precision of what is stored."""

    def __init__(self, label: str, named: Named, similarity: Similarity, query_ratio: float | None) -> None:
        super().__init__(label)
        self.model_name, self.method, self.similarity = named.model, named.method, similarity
        self.model = _load(self.model_name, self.method)
        self.ratio = self.model.config.ratio if named.ratio is None else named.ratio
        own = self.model.config.ratio_of_queries(self.ratio) if self.method is None else self.ratio
        self.query_ratio = named.query_ratio or query_ratio or own
        self.dtype = stored_dtype(self.method, self.model.can_decode)

    @property
    def bytes_per_vector(self) -> int:
        """Bytes of a stored vector."""
        return bytes_of_vector(self.model.dim, self.dtype)

    def read(self, queries: Sequence[str], documents: Sequence[str]) -> Scores:
        """Encode queries and documents."""
        found = [
            unit(PRECISIONS[self.dtype](unit(vectors, f"document {i}")), f"document {i}")
            for i, vectors in enumerate(self._encode_documents(documents))
        ]
        asked = [unit(vectors, f"query {i}") for i, vectors in enumerate(self._encode_queries(queries))]
        self.vectors = float(np.mean([len(item) for item in found]))
        self.bytes = self.vectors * self.bytes_per_vector

        def scores(query: int, chosen: Sequence[int]) -> NDArray[np.float32]:
            return self.similarity(asked[query], [found[i] for i in chosen])

        return scores

    def _encode_documents(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        return self._encode(texts, self.ratio)

    def _encode_queries(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        return self._encode(texts, self.query_ratio)

    def _encode(self, texts: Sequence[str], ratio: float) -> list[NDArray[np.float32]]:
        if self.method not in REDUCTIONS:
            return [nuggets.vectors for nuggets in _encode(self.model, self.name, texts, ratio)]
        reduce = REDUCTIONS[self.method]
        return [
            # The number of nuggets at this ratio, summed over windows.
            reduce(nuggets.vectors, sum(nugget_count(int(n), ratio) for n in nuggets.window_tokens))
            for nuggets in _all_tokens(self.model_name, tuple(texts))
        ]

    def describe(self) -> dict[str, Any]:
        """Return the weights, the model's settings, the method, the ratios, and what is stored of a vector."""
        return {
            "weights": fingerprint(self.model),
            "backbone": self.model.architecture,
            **{key: getattr(self.model.config, key, None) for key in SETTINGS},
            "window": self.model.window,
            "method": self.method or "nuggets",
            "ratio": None if self.method in WITHOUT_RATIO else self.ratio,
            "query_ratio": None if self.method in WITHOUT_RATIO else self.query_ratio,
            "dimensions": self.model.dim,
            "dtype": self.dtype,
        }


class Passages(Vectors):
    """One vector for each passage, the mean of its tokens; a query has one vector, so the best passage counts.

    Each passage is encoded by itself, as in an index of passages.
    """

    def __init__(self, label: str, named: Named, similarity: Similarity) -> None:
        super().__init__(label, named, similarity, None)
        self.words = named.words
        """Maximum number of words of a passage; None if it is still to be chosen by `prepare`."""

    def prepare(self, documents: Sequence[str], size: float | None) -> None:
        """Choose the fewest words per passage that take no more bytes than `size`, unless they were named."""
        if self.words is None and size is not None:
            counts = [count_words(text) for text in documents]
            self.words = words_per_passage(counts, size / self.bytes_per_vector)

    def _encode_documents(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        assert self.words is not None, "call `prepare` with the bytes to equal"
        passages = [split_words(text, self.words) for text in texts]
        vectors = self._means([passage for several in passages for passage in several])
        ends = np.cumsum([len(several) for several in passages])
        return np.split(np.concatenate(vectors), ends[:-1])

    def _encode_queries(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        return self._means(texts)

    def _means(self, texts: Sequence[str]) -> list[NDArray[np.float32]]:
        return [mean(nuggets.vectors, 1) for nuggets in _encode(self.model, self.name, texts, None)]

    def describe(self) -> dict[str, Any]:
        """Return the words of a passage, too."""
        return {**super().describe(), "words": self.words}


def stored_dtype(method: str | None, can_decode: bool) -> str:
    """Return the dtype in which the vectors of a method are stored, and counted.

    Nuggets have the default of an index; `bits` are bits, and other vectors float16.
    """
    return default_dtype(can_decode) if method is None else "bit" if method == "bits" else OTHERS


@lru_cache(maxsize=4)
def _load(name: str, method: str | None) -> TextInterface:
    if method is None:
        return load_encoder(name)
    model = load_token_encoder(name)
    if method in RULES:
        model.config.selector = RULES[method]
        model.selector = get_selector(RULES[method])
    return model


@lru_cache(maxsize=2)  # documents and queries, shared by all reductions of the same token vectors
def _all_tokens(name: str, texts: tuple[str, ...]) -> list[Nuggets]:
    return list(_encode(_load(name, "all"), name, texts, None))


def _encode(model: TextInterface, name: str, texts: Sequence[str], ratio: float | None) -> Iterator[Nuggets]:
    # encode_iter would report progress late, since it yields texts in order, long after their batches are done.
    budget = Budget.of(ratio, None, model.config.ratio)
    with Progress(f"encode by {name}", len(texts)) as progress:
        yield from encode_stream(model, texts, budget, BATCH, as_dtype("float32"), progress)


def split_label(name: str) -> tuple[str, str]:
    """Split `LABEL=SYSTEM` into label and system; without a label, the name is both."""
    label, equals, described = name.partition("=")
    return (label, described) if equals and "/" not in label else (name, name)


class Named(NamedTuple):
    """What the name of a system says."""

    model: str
    method: str | None
    ratio: float | None = None
    query_ratio: float | None = None
    words: int | None = None


def parse_system(name: str) -> Named | None:
    """Parse the name of a system, without its label; None for BM25."""
    if name == "bm25":
        return None
    rest, at, after = name.rpartition("@")
    if not at:
        rest, after = name, ""
    model, colon, method = rest.rpartition(":")
    if not colon or Path(rest).exists():
        model, method = rest, ""
    known = [*REDUCTIONS, PASSAGES, *RULES]
    if method and method not in known:
        raise InputError(f"{name}: no method {method!r}; choose one of {', '.join(known)}.")
    if method == PASSAGES:
        if at and not re.fullmatch("[1-9][0-9]{0,8}", after):
            raise InputError(f"{name}: write the number of words of a passage, such as passages@100.")
        return Named(model, method, words=int(after) if at else None)
    try:
        numbers = [float(part) for part in after.split("/")] if at else []
    except ValueError as error:
        raise InputError(f"{name}: the ratio {after!r} is not a number.") from error
    if len(numbers) > 2:
        raise InputError(f"{name}: write one ratio, or two for documents and queries, such as @0.1/0.25.")
    ratio, query_ratio = [*map(check_ratio, numbers), None, None][:2]
    return Named(model, method or None, ratio, query_ratio)


def check_systems(names: Sequence[str]) -> None:
    """Raise InputError if a name is invalid, or the bytes that passages are to equal are of no system before them."""
    has_nuggets = False
    for name in names:
        named = parse_system(split_label(name)[1])
        if named is None:
            continue
        if named.method == PASSAGES and named.words is None and not has_nuggets:
            raise InputError(
                f"{name}: name a system of nuggets before it, whose bytes it is to equal, or the number of words of a "
                "passage, such as passages@100."
            )
        has_nuggets = has_nuggets or named.method is None


def make_system(name: str, similarity: Similarity, query_ratio: float | None = None) -> System:
    """Return the system of a name, with its model loaded.

    Args:
        name: `bm25`, or `[LABEL=]MODEL[:METHOD][@RATIO[/QUERY_RATIO]]`.
        similarity: Similarity of two sets of vectors.
        query_ratio: Ratio for queries if the name has none; default: the model's own for nuggets, otherwise the
            ratio of the documents.
    """
    label, described = split_label(name)
    named = parse_system(described)
    if named is None:
        return Words(label)
    if named.method == PASSAGES:
        return Passages(label, named, similarity)
    return Vectors(label, named, similarity, query_ratio)
