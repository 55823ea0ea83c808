"""A Qdrant server or cluster as engine: the same index, for many processes and machines."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import IndexFileError, InputError, MissingExtraError
from textnuggets.search.backends.base import Engine, Found, Stored, point_id

try:
    from qdrant_client import QdrantClient, models
    from qdrant_client.http.exceptions import ApiException
except ImportError as error:
    raise MissingExtraError("qdrant-client", "search", "an index on a server") from error

PAGE = 256
SECONDS = 60  # until a request is given up
REQUEST_NUMBERS = 1_000_000  # of vectors in one request: some 20 MB of JSON, where a server takes 32
MOST_NUMBERS = 1_048_576  # a server refuses documents of more
DATATYPES = {
    "float32": models.Datatype.FLOAT32,
    "float16": models.Datatype.FLOAT16,
    "int8": models.Datatype.TURBO8,
}
Result = TypeVar("Result")


def connect(url: str, api_key: str | None = None) -> QdrantClient:
    """A client of the server at an address; `:memory:` is a small one in this process."""
    if url == ":memory:":
        return QdrantClient(":memory:")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # of a key without TLS and the like, which docs/search.md speaks of
            return QdrantClient(url=url, api_key=api_key, timeout=SECONDS, check_compatibility=False)
    except (ValueError, OSError, RuntimeError, ApiException) as error:
        raise IndexFileError(f"{url}: no Qdrant server ({' '.join(str(error).split())[:200]}).") from error


class ServerEngine(Engine):
    """A collection on a server."""

    def __init__(self, client: QdrantClient, collection: str) -> None:
        self.client, self.collection = client, collection

    @classmethod
    def create(
        cls, client: QdrantClient, collection: str, size: int, dtype: str, about: dict[str, Any]
    ) -> ServerEngine:
        """A new collection, with what is to be known about it as its metadata."""
        made = cls(client, collection)
        vectors = models.VectorParams(
            size=size,
            distance=models.Distance.DOT,
            datatype=DATATYPES[dtype],
            multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM),
            hnsw_config=models.HnswConfigDiff(m=0),
        )
        made._try(lambda: client.create_collection(collection, vectors_config=vectors, metadata=about))
        return made

    def exists(self) -> bool:
        """Whether the collection is there."""
        return bool(self._try(lambda: self.client.collection_exists(self.collection)))

    def about(self) -> dict[str, Any]:
        """The metadata of the collection."""
        info = self._try(lambda: self.client.get_collection(self.collection))
        return dict(info.config.metadata or {})

    def put(self, documents: Sequence[Stored]) -> None:
        """Send in parts a server takes, and wait until they are applied."""
        part: list[Any] = []
        numbers = 0
        for item in documents:
            if item.vectors.size >= MOST_NUMBERS:
                raise InputError(
                    f"document {item.id!r} has {len(item.vectors):,} vectors, more than a server takes: cut it, or lower "
                    f"the ratio."
                )
            if part and numbers + item.vectors.size > REQUEST_NUMBERS:
                self._send(part)
                part, numbers = [], 0
            point = {"id": item.id, **item.payload}
            part.append(models.PointStruct(id=point_id(item.id), vector=item.vectors.tolist(), payload=point))
            numbers += item.vectors.size
        self._send(part)

    def _send(self, points: list[Any]) -> None:
        self._try(lambda: self.client.upsert(self.collection, points, wait=True))

    def find(self, query: NDArray[np.float32], k: int, labels: Sequence[str]) -> list[Found]:
        """Look at every document that the filter lets through."""
        answer = self._try(
            lambda: self.client.query_points(
                self.collection,
                query=query.tolist(),
                limit=k,
                query_filter=_filter(labels),
                with_vectors=True,
                with_payload=True,
            )
        )
        return [Found(_stored(point), point.score) for point in answer.points]

    def get(self, ids: Sequence[str]) -> list[Stored]:
        """By id."""
        points = [point_id(name) for name in ids]
        records = self._try(
            lambda: self.client.retrieve(self.collection, points, with_payload=True, with_vectors=False)
        )
        return [_stored(record) for record in records]

    def delete(self, ids: Sequence[str]) -> None:
        """Forget documents."""
        chosen = models.PointIdsList(points=[point_id(name) for name in ids])
        self._try(lambda: self.client.delete(self.collection, chosen, wait=True))

    def documents(self) -> Iterator[Stored]:
        """All of them, a page at a time."""
        offset: Any = None
        while True:
            records, offset = self._try(
                lambda offset=offset: self.client.scroll(  # type: ignore[misc]
                    self.collection, offset=offset, limit=PAGE, with_payload=True, with_vectors=True
                )
            )
            yield from map(_stored, records)
            if offset is None:
                return

    def count(self) -> int:
        """Of documents."""
        return int(self._try(lambda: self.client.count(self.collection, exact=True)).count)

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def _try(self, action: Callable[[], Result]) -> Result:
        """Whatever the client raises, as one error that names the collection."""
        try:
            return action()
        except (ApiException, ValueError, OSError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise IndexFileError(f"collection {self.collection!r}: {reason}") from error


def _stored(point: Any) -> Stored:
    payload = dict(point.payload or {})
    vectors = np.zeros((0, 0), np.float32) if point.vector is None else np.asarray(point.vector, np.float32)
    return Stored(str(payload.pop("id")), vectors, payload)


def _filter(labels: Sequence[str]) -> Any:
    if not labels:
        return None
    return models.Filter(
        must=[models.FieldCondition(key="labels", match=models.MatchValue(value=label)) for label in labels]
    )
