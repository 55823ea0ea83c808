"""Index in a collection on a Qdrant server or cluster, for several processes and machines."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypeVar
from urllib.parse import urlparse

from textnuggets.errors import ConfigError, IndexFileError, InputError, MissingExtraError
from textnuggets.search.backends.base import Backend, Engine, Found, Query, Stored, with_score
from textnuggets.search.backends.points import (
    FUSED,
    PAGE,
    POOLS,
    RANK,
    WORDS,
    label_filter,
    nuggets_name,
    point_id,
    to_payload,
    to_stored,
    to_vectors,
)
from textnuggets.search.manifest import Manifest
from textnuggets.search.pools import CANDIDATES, FACTOR, pool_query

try:
    from qdrant_client import QdrantClient, models
    from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse
except ImportError as error:
    raise MissingExtraError("qdrant-client", "search", "an index on a server") from error

SECONDS = 60  # timeout of a request
AWAY = (429, 502, 503, 504)  # status codes of a server that is busy or starting
PAUSES = (0.5, 1, 2, 4)  # seconds before a failed request is repeated
REQUEST_NUMBERS = 1_000_000  # numbers per request: about 20 MB of JSON, while a server accepts 32 MB
MOST_NUMBERS = 1_048_576  # a server rejects documents with more numbers
DATATYPES = {
    "float32": models.Datatype.FLOAT32,
    "float16": models.Datatype.FLOAT16,
    "int8": models.Datatype.TURBO8,
    "int4": models.Datatype.TURBO4,
}
Result = TypeVar("Result")


def connect(url: str, api_key: str | None = None) -> QdrantClient:
    """Return a client of a server; `:memory:` is a small server inside this process."""
    if url == ":memory:":
        return QdrantClient(":memory:")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as about an API key without TLS
            return QdrantClient(url=url, api_key=api_key, timeout=SECONDS, check_compatibility=False)
    except (ValueError, OSError, RuntimeError, ApiException) as error:
        raise IndexFileError(
            f"{url}: cannot connect to a Qdrant server ({' '.join(str(error).split())[:200]})."
        ) from error


class ServerEngine(Engine):
    """Engine on a collection of a server; searches are exact unless the index has a first stage."""

    manifest: Manifest  # set when the index is created or opened

    def __init__(self, client: QdrantClient, collection: str) -> None:
        self.client, self.collection = client, collection

    def check(self, document: Stored) -> None:
        """Raise InputError if a document has more numbers than a server accepts."""
        if document.vectors.size >= MOST_NUMBERS:
            raise InputError(
                f"document {document.id!r} has {len(document.vectors):,} vectors, more than a server accepts: split "
                f"it, or lower the ratio."
            )

    def put(self, documents: Sequence[Stored]) -> None:
        """Send documents in requests of a size that a server accepts, and wait until they are written."""
        request: list[Any] = []
        numbers = 0
        for item in documents:
            if request and numbers + item.vectors.size > REQUEST_NUMBERS:
                self._send(request)
                request, numbers = [], 0
            request.append(
                models.PointStruct(
                    id=point_id(item.id),
                    vector=to_vectors(item, self.manifest, models.SparseVector),
                    payload=to_payload(item),
                )
            )
            numbers += item.vectors.size
        self._send(request)

    def _send(self, points: list[Any]) -> None:
        self._try(lambda: self.client.upsert(self.collection, points, wait=True))

    def find(self, query: Query, k: int) -> list[Found]:
        """Score every document that has the labels or, if there are none, every candidate of the first stage."""
        chosen = label_filter(models, query.labels)
        nuggets, name = query.vectors.tolist(), nuggets_name(self.manifest) or None
        first: list[models.Prefetch] = []
        if self.manifest.pooled and not query.labels and not query.exact:
            candidates = pool_query(query.vectors).tolist()
            first = [models.Prefetch(query=candidates, using=POOLS, limit=max(CANDIDATES, FACTOR * k))]
        ranked: Any = nuggets
        if query.words is not None:
            words = models.SparseVector(indices=query.words.indices, values=query.words.values)
            limit = max(FUSED, k)
            first = [
                models.Prefetch(query=nuggets, using=name, prefetch=first, limit=limit, filter=chosen),
                models.Prefetch(query=words, using=WORDS, limit=limit, filter=chosen),
            ]
            ranked = models.RrfQuery(rrf=models.Rrf(k=RANK))
        answer = self._try(
            lambda: self.client.query_points(
                self.collection,
                query=ranked,
                using=None if query.words is not None else name,
                prefetch=first or None,
                limit=k,
                query_filter=chosen,
                with_vectors=True,
                with_payload=True,
            )
        )
        if query.words is not None:
            return [with_score(to_stored(point), query) for point in answer.points]
        return [Found(to_stored(point), point.score) for point in answer.points]

    def get(self, ids: Sequence[str]) -> list[Stored]:
        """Return the documents with the given ids, without their vectors."""
        points = [point_id(name) for name in ids]
        records = self._try(
            lambda: self.client.retrieve(self.collection, points, with_payload=True, with_vectors=False)
        )
        return [to_stored(record) for record in records]

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents."""
        chosen = models.PointIdsList(points=[point_id(name) for name in ids])
        self._try(lambda: self.client.delete(self.collection, chosen, wait=True))

    def documents(self) -> Iterator[Stored]:
        """Yield all documents, read one page at a time."""
        offset: Any = None
        while True:
            records, offset = self._try(
                lambda offset=offset: self.client.scroll(  # type: ignore[misc]
                    self.collection, offset=offset, limit=PAGE, with_payload=True, with_vectors=True
                )
            )
            yield from map(to_stored, records)
            if offset is None:
                return

    def count(self) -> int:
        """Return the number of documents."""
        return int(self._try(lambda: self.client.count(self.collection, exact=True)).count)

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def _try(self, action: Callable[[], Result]) -> Result:
        # Documents have the same ids if they are sent again, so every request may be repeated.
        return _try(self.collection, action, PAUSES)


class ServerBackend(Backend):
    """Index in a collection, whose metadata is the manifest; the server locks and compacts by itself."""

    engine: ServerEngine

    def __init__(self, place: str, api_key: str | None = None) -> None:
        super().__init__(place)
        url, self.collection = split_address(place)
        self.client = connect(url, api_key)
        self.engine = ServerEngine(self.client, self.collection)

    def exists(self) -> bool:
        """Return whether the collection exists."""
        return bool(_try(self.collection, lambda: self.client.collection_exists(self.collection)))

    def create(self, manifest: Manifest, shards: int | None = None, replicas: int | None = None) -> None:
        """Create an empty collection."""
        if self.exists():
            raise IndexFileError(f"{self.place} already exists: open it, or name another collection.")

        def vectors(edges: int, on_disk: bool | None = None) -> models.VectorParams:
            return models.VectorParams(
                size=manifest.dimensions,
                distance=models.Distance.DOT,
                datatype=DATATYPES[manifest.dtype],
                multivector_config=models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM),
                hnsw_config=models.HnswConfigDiff(m=edges),
                on_disk=on_disk,
            )

        # No graph of the nuggets: a search scores every document, or every candidate of the first stage, whose vectors
        # need not be in memory.
        named = {nuggets_name(manifest): vectors(0, True if manifest.pooled else None)}
        if manifest.pooled:
            named[POOLS] = vectors(edges=16)
        words = models.SparseVectorParams(modifier=models.Modifier.IDF)
        _try(
            self.collection,
            lambda: self.client.create_collection(
                self.collection,
                vectors_config=named if manifest.pooled else named[""],
                sparse_vectors_config={WORDS: words} if manifest.words else None,
                shard_number=shards,
                replication_factor=replicas,
                metadata=asdict(manifest),
            ),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the client's local mode has no index of labels
            _try(
                self.collection,
                lambda: self.client.create_payload_index(
                    self.collection, "labels", models.PayloadSchemaType.KEYWORD
                ),
            )
        self._use(manifest)

    def read_manifest(self) -> Manifest:
        """Return the manifest in the metadata of the collection."""
        if not self.exists():
            raise IndexFileError(f"{self.place}: the server has no such collection.")
        info = _try(self.collection, lambda: self.client.get_collection(self.collection))
        return Manifest.read(dict(info.config.metadata or {}), self.place)

    def open(self, read_only: bool = False) -> None:  # noqa: ARG002
        """Read the manifest."""
        self._use(self.read_manifest())

    def _use(self, manifest: Manifest) -> None:
        self.manifest = self.engine.manifest = manifest

    def close(self) -> None:
        """Close the connection."""
        self.engine.close()

    def compact(self, show_progress_bar: bool) -> None:  # noqa: ARG002
        """Raise ConfigError, since the server compacts by itself."""
        raise ConfigError("a server compacts its collections itself.")


def split_address(address: str) -> tuple[str, str]:
    """Return the server and the collection of `http://host:port/collection`."""
    parts = urlparse(address)
    collection = parts.path.strip("/")
    if not parts.netloc or not collection or "/" in collection:
        raise ConfigError(f"{address}: write a server as http://host:6333/collection.")
    return f"{parts.scheme}://{parts.netloc}", collection


def _try(collection: str, action: Callable[[], Result], pauses: Sequence[float] = ()) -> Result:
    """Run a request; raise IndexFileError with the collection if it fails.

    Args:
        collection: Collection, for error messages.
        action: Request, which may be run several times.
        pauses: Seconds to wait before each further attempt, if the server is away.
    """
    try:
        for pause in pauses:
            try:
                return action()
            except (ResponseHandlingException, UnexpectedResponse) as error:
                if isinstance(error, UnexpectedResponse) and error.status_code not in AWAY:
                    raise
                time.sleep(pause)
        return action()
    except (ApiException, ValueError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise IndexFileError(f"collection {collection!r}: {reason}") from error
