"""What an index needs of the engine that holds its vectors: another engine is one more file like `edge`.

An engine keeps documents of several unit vectors each, finds those with the largest sum over a query's
vectors of the best dot product with theirs (MaxSim), and is not asked for more.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

import numpy as np
from numpy.typing import NDArray

DTYPES = ("float32", "float16", "int8")


class Stored(NamedTuple):
    """One document as an engine keeps it."""

    id: str
    """The user's own."""
    vectors: NDArray[np.float32]
    """`(k, d)` unit vectors."""
    payload: dict[str, Any]
    """What belongs to it, as JSON; its `labels`, a list of texts, can be filtered by."""


class Found(NamedTuple):
    """A document that was found."""

    document: Stored
    score: float
    """The sum over the query's vectors."""


class Engine(ABC):
    """Documents of unit vectors, found by MaxSim."""

    @abstractmethod
    def put(self, documents: Sequence[Stored]) -> None:
        """Add documents, in place of those with the same ids; they are safe when this returns."""

    @abstractmethod
    def find(self, query: NDArray[np.float32], k: int, labels: Sequence[str]) -> list[Found]:
        """The k best documents with all of some labels for `(q, d)` unit vectors, best first, with their vectors."""

    @abstractmethod
    def get(self, ids: Sequence[str]) -> list[Stored]:
        """Those of some documents that are there, in any order, without their vectors."""

    @abstractmethod
    def delete(self, ids: Sequence[str]) -> None:
        """Forget documents."""

    @abstractmethod
    def documents(self) -> Iterator[Stored]:
        """All documents, in any order."""

    @abstractmethod
    def count(self) -> int:
        """How many documents there are."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""


def point_id(name: str) -> str:
    """The UUID by which an engine knows a document: engines take no other names."""
    return str(uuid5(NAMESPACE_URL, f"textnuggets:{name}"))


def labels_of(metadata: Mapping[str, Any]) -> list[str]:
    """What metadata is filtered by: `key=value` for each value that is no object; of a list, for each item.

    As text, so that '1999' finds 1999, and so that engines need to compare nothing but texts.
    """
    found: list[str] = []
    for key, value in metadata.items():
        for item in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(item, dict | list | tuple):
                found.append(f"{key}={_written(item)}")
    return found


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)
