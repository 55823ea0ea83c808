"""Qdrant Edge, the engine of an index in a folder, inside this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from textnuggets.errors import IndexFileError, MissingExtraError
from textnuggets.io.disk import sync_tree
from textnuggets.io.files import disk_usage
from textnuggets.io.panics import catching_panics
from textnuggets.search.backends.base import Engine, Found, Query, Stored, with_score
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
from textnuggets.search.manifest import CHECK, Manifest
from textnuggets.search.pools import CANDIDATES, FACTOR, pool_query

try:
    import qdrant_edge as qdrant
except ImportError as error:
    raise MissingExtraError("qdrant-edge-py", "search", "an index on disk") from error

SPARE = 150_000_000  # bytes that must stay free on the disk: files grow in steps of 32 MB
DATATYPES = {
    "float32": qdrant.VectorStorageDatatype.Float32,
    "float16": qdrant.VectorStorageDatatype.Float16,
    "int8": qdrant.VectorStorageDatatype.Turbo8,  # eight bits per number, after a rotation
    "int4": qdrant.VectorStorageDatatype.Turbo4,  # type: ignore[attr-defined]  # missing in the stubs of 0.9
}
Result = TypeVar("Result")


class EdgeEngine(Engine):
    """Engine on a folder of Qdrant Edge's files; searches are exact unless the index has a first stage."""

    def __init__(self, folder: Path, manifest: Manifest, shard: Any) -> None:
        self.folder, self._manifest, self._shard = folder, manifest, shard
        self._updates = 0  # updates since it was created or opened here
        self.before_update: Callable[[], None] = lambda: None
        """Called before each change of the files."""

    @classmethod
    def create(cls, folder: Path, manifest: Manifest) -> EdgeEngine:
        """Create an empty engine for an index."""

        def vectors(edges: int, memory: Any = None) -> Any:
            return qdrant.EdgeVectorParams(
                size=manifest.dimensions,
                distance=qdrant.Distance.Dot,
                multivector_config=qdrant.MultiVectorConfig(qdrant.MultiVectorComparator.MaxSim),
                datatype=DATATYPES[manifest.dtype],
                hnsw_config=qdrant.HnswIndexConfig(m=edges, ef_construct=100, full_scan_threshold=0),
                memory=memory,
            )

        # No graph of the nuggets: a search scores every document, or every candidate of the first stage. By default, all
        # vectors are read into memory when the engine is opened; those of candidates need not be.
        named = {nuggets_name(manifest): vectors(0, qdrant.Memory.Cold if manifest.pooled else None)}
        if manifest.pooled:
            named[POOLS] = vectors(edges=16)
        words = {WORDS: qdrant.EdgeSparseVectorParams(modifier=qdrant.Modifier.Idf)}
        config = qdrant.EdgeConfig(
            vectors=named,
            sparse_vectors=words if manifest.words else None,
            # The graph is built when the index is compacted, however small it is.
            optimizers=qdrant.EdgeOptimizersConfig(indexing_threshold=1) if manifest.pooled else None,
            # Without the log, vectors reach the disk before their payload, and a killed process leaves them inconsistent.
            wal_enabled=True,
        )
        folder.mkdir()
        engine = cls(folder, manifest, _try(folder, lambda: qdrant.EdgeShard.create(str(folder), config)))
        # So that a filter does not read the payload of every document.
        labels = qdrant.KeywordIndexParams(memory=qdrant.Memory.Cold)
        engine._update(lambda: qdrant.UpdateOperation.create_field_index("labels", labels))
        return engine

    @classmethod
    def open(cls, folder: Path, manifest: Manifest) -> EdgeEngine:
        """Open the engine of a folder."""
        return cls(folder, manifest, _try(folder, lambda: _load(folder)))

    def put(self, documents: Sequence[Stored], durable: bool = True) -> None:
        """Write documents, and flush them to disk unless they need not be durable yet."""
        check_room(self.folder, 3 * sum(item.vectors.nbytes for item in documents))
        self._update(
            lambda: qdrant.UpdateOperation.upsert_points(
                [
                    qdrant.Point(
                        point_id(item.id),
                        to_vectors(item, self._manifest, qdrant.SparseVector),
                        to_payload(item),
                    )
                    for item in documents
                ]
            ),
            durable,
        )

    def find(self, query: Query, k: int) -> list[Found]:
        """Score every document that has the labels or, if there are none, every candidate of the first stage."""
        chosen = label_filter(qdrant, query.labels)
        nuggets = qdrant.Query.Nearest(query.vectors.tolist(), nuggets_name(self._manifest))
        first = []
        if self._manifest.pooled and not query.labels and not query.exact:
            candidates = qdrant.Query.Nearest(pool_query(query.vectors).tolist(), POOLS)
            first = [qdrant.Prefetch(limit=max(CANDIDATES, FACTOR * k), query=candidates)]
        ranked: Any = nuggets
        if query.words is not None:
            words = qdrant.Query.Nearest(qdrant.SparseVector(*query.words), WORDS)
            limit = max(FUSED, k)
            first = [
                qdrant.Prefetch(limit=limit, query=nuggets, prefetches=first, filter=chosen),
                qdrant.Prefetch(limit=limit, query=words, filter=chosen),
            ]
            ranked = qdrant.Fusion.Rrf(RANK)
        points = _try(
            self.folder,
            lambda: self._shard.query(
                qdrant.QueryRequest(
                    query=ranked,
                    prefetches=first,
                    limit=k,
                    filter=chosen,
                    with_vector=True,
                    with_payload=True,
                )
            ),
        )
        if query.words is not None:
            return [with_score(to_stored(point), query) for point in points]
        # The engine leaves out documents whose score is not a number.
        if not first and len(points) < k and len(points) != (count := self._count(chosen)):
            raise IndexFileError(
                f"{self.folder.parent} is damaged: {len(points):,} of {count:,} documents have a score; {CHECK}."
            )
        return [Found(to_stored(point), point.score) for point in points]

    def get(self, ids: Sequence[str]) -> list[Stored]:
        """Return the documents with the given ids, without their vectors."""
        points = [point_id(name) for name in ids]
        records = _try(
            self.folder, lambda: self._shard.retrieve(points, with_payload=True, with_vector=False)
        )
        return [to_stored(record) for record in records]

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents; their bytes stay on disk until the index is compacted."""
        self._update(lambda: qdrant.UpdateOperation.delete_points([point_id(name) for name in ids]))

    def documents(self) -> Iterator[Stored]:
        """Yield all documents, read one page at a time."""
        offset = None
        while True:
            request = qdrant.ScrollRequest(offset=offset, limit=PAGE, with_payload=True, with_vector=True)
            records, offset = _try(self.folder, lambda request=request: self._shard.scroll(request))  # type: ignore[misc]
            yield from map(to_stored, records)
            if offset is None:
                return

    def count(self) -> int:
        """Return the number of documents."""
        return self._count(None)

    def _count(self, chosen: Any) -> int:
        request = qdrant.CountRequest(exact=True, filter=chosen)
        return int(_try(self.folder, lambda: self._shard.count(request)))

    def optimize(self) -> None:
        """Merge the segments into few."""
        _try(self.folder, self._shard.optimize)
        self.flush()

    def drop_log(self) -> None:
        """Remove the log of a flushed engine that was created here; it takes more space than everything else.

        Qdrant numbers updates by their position in the log and ignores an update of a document that already has a
        higher number. Updates without effect bring the new log to the length of the old one.
        """
        self.close()
        shutil.rmtree(self.folder / "wal")
        self._shard = _try(self.folder, lambda: qdrant.EdgeShard.load(str(self.folder)))
        nothing = point_id("")  # ids are not empty, so this document does not exist
        for _ in range(self._updates + 1):
            _try(self.folder, lambda: self._shard.update(qdrant.UpdateOperation.delete_points([nothing])))
        self.flush()

    def flush(self) -> None:
        """Wait until all updates are on disk."""
        _try(self.folder, self._shard.flush)
        sync_tree(self.folder)  # the engine syncs the content of its files, but not all of their names

    @property
    def log_bytes(self) -> int:
        """Bytes of the log, which holds a second copy of everything."""
        return disk_usage(self.folder / "wal")

    def close(self) -> None:
        """Close the files."""
        _try(self.folder, self._shard.close)

    def _update(self, make: Callable[[], Any], durable: bool = True) -> None:
        self.before_update()
        self._updates += 1
        _try(self.folder, lambda: self._shard.update(make()))
        if durable:
            self.flush()


def check_room(folder: Path, size: int) -> None:
    """Raise IndexFileError if a disk is nearly full.

    The engine writes to memory-mapped files, so a full disk would kill the process.

    Args:
        folder: Folder on the disk.
        size: Bytes to write.
    """
    free = shutil.disk_usage(folder).free
    if free < size + SPARE:
        raise IndexFileError(
            f"{folder}: the disk has {free / 1e6:,.0f} MB left, too little to continue. Reported documents are safe."
        )


def _load(folder: Path) -> Any:
    with catching_panics():
        shard = qdrant.EdgeShard.load(str(folder))
        # Files that are missing or too short are noticed only when a document is read.
        shard.scroll(qdrant.ScrollRequest(limit=1, with_payload=True, with_vector=True))
        return shard


def _try(folder: Path, action: Callable[[], Result]) -> Result:
    """Run an action of the engine; raise IndexFileError with the folder if it fails."""
    try:
        return action()
    except BaseException as error:
        # BaseException, since the engine's panics are not Exceptions.
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise IndexFileError(f"{folder}: {reason}") from error
