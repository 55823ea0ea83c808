"""Qdrant Edge, the engine of an index in a folder, inside this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import IndexFileError, MissingExtraError
from textnuggets.io.disk import sync_tree
from textnuggets.io.files import disk_usage
from textnuggets.io.panics import catching_panics
from textnuggets.search.backends.base import Engine, Found, Stored
from textnuggets.search.backends.points import PAGE, label_filter, point_id, to_payload, to_stored
from textnuggets.search.manifest import CHECK

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
    """Engine on a folder of Qdrant Edge's files; searches are exact."""

    def __init__(self, folder: Path, shard: Any) -> None:
        self.folder, self._shard = folder, shard
        self._updates = 0  # updates since it was created or opened here
        self.before_update: Callable[[], None] = lambda: None
        """Called before each change of the files."""

    @classmethod
    def create(cls, folder: Path, size: int, dtype: str) -> EdgeEngine:
        """Create an empty engine for vectors of `size` dimensions."""
        vectors = qdrant.EdgeVectorParams(
            size=size,
            distance=qdrant.Distance.Dot,
            multivector_config=qdrant.MultiVectorConfig(qdrant.MultiVectorComparator.MaxSim),
            datatype=DATATYPES[dtype],
            # No graph: every document is scored, so that searches are exact.
            hnsw_config=qdrant.HnswIndexConfig(m=0, ef_construct=16, full_scan_threshold=0),
        )
        # Without the log, vectors reach the disk before their payload, and a killed process leaves them inconsistent.
        config = qdrant.EdgeConfig(vectors=vectors, wal_enabled=True)
        folder.mkdir()
        engine = cls(folder, _try(folder, lambda: qdrant.EdgeShard.create(str(folder), config)))
        engine.flush()
        return engine

    @classmethod
    def open(cls, folder: Path) -> EdgeEngine:
        """Open the engine of a folder."""
        return cls(folder, _try(folder, lambda: _load(folder)))

    def put(self, documents: Sequence[Stored]) -> None:
        """Write documents and flush them to disk."""
        self._check_room(sum(item.vectors.nbytes for item in documents))
        self._update(
            lambda: qdrant.UpdateOperation.upsert_points(
                [
                    qdrant.Point(point_id(item.id), item.vectors.tolist(), to_payload(item))
                    for item in documents
                ]
            )
        )

    def find(self, query: NDArray[np.float32], k: int, labels: Sequence[str]) -> list[Found]:
        """Score every document that has the labels, and return the k best."""
        chosen = label_filter(qdrant, labels)
        points = _try(
            self.folder,
            lambda: self._shard.query(
                qdrant.QueryRequest(
                    query=qdrant.Query.Nearest(query.tolist()),
                    limit=k,
                    filter=chosen,
                    with_vector=True,
                    with_payload=True,
                )
            ),
        )
        # The engine leaves out documents whose score is not a number.
        if len(points) < k and len(points) != (count := self._count(chosen)):
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

    def _update(self, make: Callable[[], Any]) -> None:
        self.before_update()
        self._updates += 1
        _try(self.folder, lambda: self._shard.update(make()))
        self.flush()

    def _check_room(self, size: int) -> None:
        """Raise IndexFileError if the disk is nearly full.

        The engine writes to memory-mapped files, so a full disk would kill the process.
        """
        free = shutil.disk_usage(self.folder).free
        if free < size * 3 + SPARE:
            raise IndexFileError(
                f"{self.folder}: the disk has {free / 1e6:,.0f} MB left, too little to continue. Reported documents are safe."
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
