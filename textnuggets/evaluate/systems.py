"""What can be compared, by name: `bm25`, or `[LABEL=]MODEL[:METHOD][@RATIO[/QUERY_RATIO]]`.

    bm25                         words, by BM25
    search                       the nuggets of a model, at its own ratio
    search@0.05                  at another
    search@0.05/0.5              and queries at one of their own
    all-MiniLM-L6-v2:all         every token of an encoder
    all-MiniLM-L6-v2:ward@0.1    as many vectors as nuggets at that ratio, by a rule
    mine=runs/3/best             called 'mine' in the table

METHOD is one of `reducing.REDUCTIONS`, or `chunking` or `sentences` (the paper's two rules).
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
from textnuggets.model.fingerprint import fingerprint
from textnuggets.model.load import load_nugget_model
from textnuggets.model.maxsim import Similarity, unit
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.nuggets import Nuggets
from textnuggets.model.selection import get_selector, nugget_count
from textnuggets.model.token_encoder import load_token_encoder
from textnuggets.search.bm25 import BM25

BATCH = 32  # windows encoded together
WITHOUT_RATIO = ("all", "mean", "sentences")
RULES = {"chunking": "chunking", "sentences": "sentence_boundary"}  # methods that are selectors of ours

Scores = Callable[[int, Sequence[int]], NDArray[np.float32]]  # a query and documents -> how well they fit


class System(ABC):
    """Something that says how well documents fit a query."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.vectors: float | None = None
        """Vectors a document, on average, once it has read them."""

    @abstractmethod
    def read(self, queries: Sequence[str], documents: Sequence[str]) -> Scores:
        """Take in the texts; returns what scores them, by number."""

    def describe(self) -> dict[str, Any]:
        """What the figures of this system depend on."""
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
    """Vectors of texts, compared by a similarity."""

    def __init__(self, name: str, similarity: Similarity, query_ratio: float | None) -> None:
        label, described = split_label(name)
        super().__init__(label)
        model, method, ratio, named = _parse(described)
        self.model_name, self.method, self.similarity = model, method, similarity
        self.model = _load(model, method)
        self.ratio = self.model.config.ratio if ratio is None else ratio
        own = self.model.config.query_ratio if method is None else None
        self.query_ratio = named or query_ratio or own or self.ratio

    def read(self, queries: Sequence[str], documents: Sequence[str]) -> Scores:
        """Encode everything once."""
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
            # As many as nuggets would be, window by window.
            reduce(nuggets.vectors, sum(nugget_count(int(n), ratio) for n in nuggets.windows[:, 1]))
            for nuggets in _all_tokens(self.model_name, tuple(texts))
        ]

    def describe(self) -> dict[str, Any]:
        """The weights and how they were used."""
        return {
            "weights": fingerprint(self.model),
            "backbone": self.model.adapter.config.model_type,
            **{
                key: getattr(self.model.config, key)
                for key in ("selector", "gather", "scorer_layer", "feedback")
            },
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


@lru_cache(maxsize=2)  # documents and queries, for all that is made of the same token vectors
def _all_tokens(name: str, texts: tuple[str, ...]) -> list[Nuggets]:
    return list(_encode(_load(name, "all"), name, texts, None))


def _encode(model: NuggetModel, name: str, texts: Sequence[str], ratio: float | None) -> Iterator[Nuggets]:
    # Not by encode_iter, whose texts come out in order, long after their batches are done.
    budget = Budget.of(ratio, None, model.config.ratio)
    with Progress(f"encode by {name}", len(texts)) as progress:
        yield from encode_stream(model, texts, budget, BATCH, as_dtype("float32"), progress)


def split_label(name: str) -> tuple[str, str]:
    """What a system is called in tables, and what it is."""
    label, equals, described = name.partition("=")
    return (label, described) if equals and "/" not in label else (name, name)


def _parse(name: str) -> tuple[str, str | None, float | None, float | None]:
    """Model, method, ratio and ratio of queries of a name."""
    rest, at, ratios = name.rpartition("@")
    if not at:
        rest, ratios = name, ""
    model, colon, method = rest.rpartition(":")
    if not colon or Path(rest).exists():
        model, method = rest, ""
    known = [*REDUCTIONS, *RULES]
    if method and method not in known:
        raise InputError(f"{name}: no method {method!r}; there are {', '.join(known)}.")
    try:
        numbers = [float(part) for part in ratios.split("/")] if at else []
    except ValueError as error:
        raise InputError(f"{name}: {ratios!r} is no ratio.") from error
    if len(numbers) > 2:
        raise InputError(f"{name}: write one ratio, or two, of documents and queries.")
    ratio, query_ratio = [*map(check_ratio, numbers), None, None][:2]
    return model, method or None, ratio, query_ratio


def make_system(name: str, similarity: Similarity, query_ratio: float | None = None) -> System:
    """The system of a name, as above; models are loaded.

    Args:
        name: `bm25`, or `[LABEL=]MODEL[:METHOD][@RATIO[/QUERY_RATIO]]`.
        similarity: Of vectors with vectors.
        query_ratio: The ratio of queries, whose vectors take no room in an index, where the name has none.
    """
    return Words(name) if name == "bm25" else Vectors(name, similarity, query_ratio)
