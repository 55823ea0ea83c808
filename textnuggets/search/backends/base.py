"""Interface of a backend: an engine that searches vectors, and storage for an index around it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textnuggets.search.manifest import Manifest


class Words(NamedTuple):
    """Words of a text as a sparse vector."""

    indices: list[int]
    """Number of each word."""
    values: list[float]
    """Its weight."""


class Stored(NamedTuple):
    """Document as an engine stores it."""

    id: str
    """Id given by the user."""
    vectors: NDArray[np.float32]
    """`(k, d)` unit vectors."""
    payload: dict[str, Any]
    """JSON object stored with the vectors; searches can filter by its `labels`, a list of strings."""
    words: Words | None = None
    """Its words, if the index stores words."""


class Query(NamedTuple):
    """What an engine is to find."""

    vectors: NDArray[np.float32]
    """`(q, d)` unit vectors."""
    labels: Sequence[str] = ()
    """Labels that a document must all have."""
    words: Words | None = None
    """Words, which rank documents, too; None to rank by vectors alone."""
    exact: bool = False
    """Whether to score every document, also if the index has a first stage."""


def rescaled(document: Stored) -> Stored:
    """Return a document with vectors of length 1, as they were before they were stored as int4.

    Stored again, these have the same numbers; the vectors as they were read would be rounded once more.
    """
    lengths = np.linalg.norm(document.vectors, axis=1, keepdims=True)
    scaled = document.vectors / np.where(lengths > 0, lengths, 1)
    return document._replace(vectors=scaled.astype(np.float32))


class Found(NamedTuple):
    """Document found by an engine."""

    document: Stored
    score: float
    """MaxSim: the sum over the query's vectors of the highest dot product."""


def with_score(document: Stored, query: Query) -> Found:
    """Return a document with its score, for rankings by something else."""
    return Found(document, float((query.vectors @ document.vectors.T).max(1).sum()))


class Engine(ABC):
    """Multi-vector search engine: stores documents of unit vectors and ranks them by MaxSim."""

    def check(self, document: Stored) -> None:  # noqa: B027
        """Raise InputError if a document is too large for the engine; accepts all by default."""

    @abstractmethod
    def put(self, documents: Sequence[Stored]) -> None:
        """Write documents, replacing those with the same ids; return once they are durable."""

    @abstractmethod
    def find(self, query: Query, k: int) -> list[Found]:
        """Return the k best documents with their vectors, best first.

        With words, the order is that of reciprocal ranks by vectors and by words.

        Args:
            query: Vectors, and what else documents must match.
            k: Number of documents at most.
        """

    @abstractmethod
    def get(self, ids: Sequence[str]) -> list[Stored]:
        """Return the documents with the given ids that exist, in any order, without their vectors."""

    @abstractmethod
    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents."""

    @abstractmethod
    def documents(self) -> Iterator[Stored]:
        """Yield all documents, in any order."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of documents."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""


class Backend(ABC):
    """Storage of one index: its manifest and its engine, which are set by `create` and `open`."""

    manifest: Manifest
    engine: Engine

    def __init__(self, place: str) -> None:
        self.place = place

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the index exists."""

    @abstractmethod
    def create(self, manifest: Manifest, shards: int | None = None, replicas: int | None = None) -> None:
        """Create an empty index; raise IndexFileError if something is in its place.

        Args:
            manifest: Settings of the index.
            shards: Parts into which a cluster splits it; its own default if None.
            replicas: Copies of each part in a cluster; its own default if None.
        """

    @abstractmethod
    def read_manifest(self) -> Manifest:
        """Return the stored manifest without opening the index; raise IndexFileError if there is none."""

    @abstractmethod
    def open(self, read_only: bool = False) -> None:
        """Open an existing index, locking it if only one process may use it.

        Args:
            read_only: Whether to open the index also while another process has it open.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the engine and release the lock."""

    def check_files(self) -> tuple[int, list[str]]:
        """Compare all files with their checksums; call it before `open`.

        Return the number of files that have a checksum, 0 by default, and a description of each damaged file.
        """
        return 0, []

    @contextmanager
    def changing(self, removed: Sequence[Stored], added: Sequence[Stored] = ()) -> Iterator[None]:  # noqa: ARG002
        """Count documents and their sizes while the engine is changed; does nothing by default.

        So `open` can detect lost documents, and `disk_usage` knows the sizes without reading all documents.

        Args:
            removed: Documents that are to be deleted or replaced.
            added: Documents that are to be written.
        """
        yield

    @abstractmethod
    def compact(self, show_progress_bar: bool) -> None:
        """Rewrite the index without deleted and replaced documents; raise ConfigError if it compacts by itself."""

    def disk_usage(self) -> dict[str, Any]:
        """Return `bytes`, `reclaimable_bytes` and the sizes of the documents; empty, the default, on a server."""
        return {}

    @property
    def reclaimable_bytes(self) -> int:
        """Bytes that `compact` would free at least; 0, the default, if it compacts by itself."""
        return 0
