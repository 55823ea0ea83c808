"""Retrieval systems by name: `bm25`, or `[LABEL=]MODEL[:METHOD][@RATIO[/QUERY_RATIO]]`.

    bm25                         BM25 over words
    search                       nuggets of a model, at its own ratio
    search@0.05                  nuggets at another ratio
    search@0.05/0.5              nuggets at another ratio, and a separate ratio for queries
    all-MiniLM-L6-v2:all         every token of an encoder
    all-MiniLM-L6-v2:ward@0.1    as many vectors as nuggets at that ratio, by a rule
    mine=runs/3/best             a model with the label 'mine'

METHOD is one of `pooling_baselines.REDUCTIONS`, or `chunking` or `sentences` (the two rules of the paper).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textnuggets.config import check_ratio
from textnuggets.errors import InputError
from textnuggets.evaluate.pooling_baselines import REDUCTIONS
from textnuggets.io.progress import Progress
from textnuggets.model.encoding import Budget, as_dtype, encode_stream
from textnuggets.model.fingerprint import SETTINGS, fingerprint
from textnuggets.model.load import load_nugget_model
from textnuggets.model.maxsim import Similarity, unit
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.nuggets import Nuggets
from textnuggets.model.selection import get_selector, nugget_count
from textnuggets.model.token_encoder import load_token_encoder
from textnuggets.search.bm25 import BM25

BATCH = 32  # windows encoded together
WITHOUT_RATIO = ("all", "mean", "sentences")
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

        def scores(query: int, chosen: Sequence[int]) -> NDArray[np.float32]:
            return engine.scores(queries[query])[np.asarray(chosen)]

        return scores


class Vectors(System):
    """Vectors of a model, compared by a similarity."""

    def __init__(self, name: str, similarity: Similarity, query_ratio: float | None) -> None:
        label, described = split_label(name)
        super().__init__(label)
        model, method, ratio, named = _parse(described)
        self.model_name, self.method, self.similarity = model, method, similarity
        self.model = _load(model, method)
        self.ratio = self.model.config.ratio if ratio is None else ratio
        own = self.model.config.ratio_of_queries(self.ratio) if method is None else self.ratio
        self.query_ratio = named or query_ratio or own

    def read(self, queries: Sequence[str], documents: Sequence[str]) -> Scores:
        """Encode queries and documents."""
        found, asked = (
            [unit(vectors, f"text {i}") for i, vectors in enumerate(self._encode(texts, ratio))]
            for texts, ratio in ((documents, self.ratio), (queries, self.query_ratio))
        )
        self.vectors = float(np.mean([len(item) for item in found]))

        def scores(query: int, chosen: Sequence[int]) -> NDArray[np.float32]:
            return self.similarity(asked[query], [found[i] for i in chosen])

        return scores

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
        """Return the weights, the model's settings, the method and the ratios."""
        return {
            "weights": fingerprint(self.model),
            "backbone": self.model.adapter.config.model_type,
            **{key: getattr(self.model.config, key) for key in SETTINGS},
            "window": self.model.window,
            "method": self.method or "nuggets",
            "ratio": None if self.method in WITHOUT_RATIO else self.ratio,
            "query_ratio": None if self.method in WITHOUT_RATIO else self.query_ratio,
        }


@lru_cache(maxsize=4)
def _load(name: str, method: str | None) -> NuggetModel:
    if method is None:
        return load_nugget_model(name)
    model = load_token_encoder(name)
    if method in RULES:
        model.config.selector = RULES[method]
        model.selector = get_selector(RULES[method])
    return model


@lru_cache(maxsize=2)  # documents and queries, shared by all reductions of the same token vectors
def _all_tokens(name: str, texts: tuple[str, ...]) -> list[Nuggets]:
    return list(_encode(_load(name, "all"), name, texts, None))


def _encode(model: NuggetModel, name: str, texts: Sequence[str], ratio: float | None) -> Iterator[Nuggets]:
    # encode_iter would report progress late, since it yields texts in order, long after their batches are done.
    budget = Budget.of(ratio, None, model.config.ratio)
    with Progress(f"encode by {name}", len(texts)) as progress:
        yield from encode_stream(model, texts, budget, BATCH, as_dtype("float32"), progress)


def split_label(name: str) -> tuple[str, str]:
    """Split `LABEL=SYSTEM` into label and system; without a label, the name is both."""
    label, equals, described = name.partition("=")
    return (label, described) if equals and "/" not in label else (name, name)


def _parse(name: str) -> tuple[str, str | None, float | None, float | None]:
    """Parse a name into model, method, ratio and query ratio."""
    rest, at, ratios = name.rpartition("@")
    if not at:
        rest, ratios = name, ""
    model, colon, method = rest.rpartition(":")
    if not colon or Path(rest).exists():
        model, method = rest, ""
    known = [*REDUCTIONS, *RULES]
    if method and method not in known:
        raise InputError(f"{name}: no method {method!r}; choose one of {', '.join(known)}.")
    try:
        numbers = [float(part) for part in ratios.split("/")] if at else []
    except ValueError as error:
        raise InputError(f"{name}: the ratio {ratios!r} is not a number.") from error
    if len(numbers) > 2:
        raise InputError(f"{name}: write one ratio, or two for documents and queries, such as @0.1/0.25.")
    ratio, query_ratio = [*map(check_ratio, numbers), None, None][:2]
    return model, method or None, ratio, query_ratio


def make_system(name: str, similarity: Similarity, query_ratio: float | None = None) -> System:
    """Return the system of a name, with its model loaded.

    Args:
        name: `bm25`, or `[LABEL=]MODEL[:METHOD][@RATIO[/QUERY_RATIO]]`.
        similarity: Similarity of two sets of vectors.
        query_ratio: Ratio for queries if the name has none; default: the model's own for nuggets, otherwise the
            ratio of the documents.
    """
    return Words(name) if name == "bm25" else Vectors(name, similarity, query_ratio)
