"""Qdrant Edge: the engine inside this process, one folder on disk, exact."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import IndexFileError, MissingExtraError
from textnuggets.io.files import disk_usage
from textnuggets.search.backends.base import Engine, Found, Stored, point_id

try:
    import qdrant_edge as qdrant
except ImportError as error:
    raise MissingExtraError("qdrant-edge-py", "search", "an index on disk") from error

PAGE = 256  # documents read at a time
SPARE = 150_000_000  # bytes the disk must have left: files grow in steps of 32 MB
DATATYPES = {
    "float32": qdrant.VectorStorageDatatype.Float32,
    "float16": qdrant.VectorStorageDatatype.Float16,
    "int8": qdrant.VectorStorageDatatype.Turbo8,  # eight bits a number, after a rotation
}
Result = TypeVar("Result")


class EdgeEngine(Engine):
    """A folder of Qdrant Edge's own files."""

    def __init__(self, folder: Path, shard: Any) -> None:
        self.folder, self._shard = folder, shard
        self._updates = 0  # since it was made or opened here

    @classmethod
    def create(cls, folder: Path, size: int, dtype: str) -> EdgeEngine:
        """An empty engine for vectors of `size` dimensions."""
        vectors = qdrant.EdgeVectorParams(
            size=size,
            distance=qdrant.Distance.Dot,
            multivector_config=qdrant.MultiVectorConfig(qdrant.MultiVectorComparator.MaxSim),
            datatype=DATATYPES[dtype],
            # No graph: every document is looked at, so that nothing is missed.
            hnsw_config=qdrant.HnswIndexConfig(m=0, ef_construct=16, full_scan_threshold=0),
        )
        # With its log: without, vectors reach the disk before what belongs to them, and a kill tears them apart.
        config = qdrant.EdgeConfig(vectors=vectors, wal_enabled=True)
        folder.mkdir(parents=True)
        return cls(folder, _try(folder, lambda: qdrant.EdgeShard.create(str(folder), config)))

    @classmethod
    def open(cls, folder: Path) -> EdgeEngine:
        """The engine of a folder."""
        return cls(folder, _try(folder, lambda: qdrant.EdgeShard.load(str(folder))))

    def put(self, documents: Sequence[Stored]) -> None:
        """Write, and wait for the disk."""
        self._check_room(sum(item.vectors.nbytes for item in documents))
        self._update(
            lambda: qdrant.UpdateOperation.upsert_points(
                [
                    qdrant.Point(point_id(item.id), item.vectors.tolist(), {"id": item.id, **item.payload})
                    for item in documents
                ]
            )
        )

    def find(self, query: NDArray[np.float32], k: int, labels: Sequence[str]) -> list[Found]:
        """Look at every document that the filter lets through."""
        points = _try(
            self.folder,
            lambda: self._shard.query(
                qdrant.QueryRequest(
                    query=qdrant.Query.Nearest(query.tolist()),
                    limit=k,
                    filter=_filter(labels),
                    with_vector=True,
                    with_payload=True,
                )
            ),
        )
        return [Found(_stored(point), point.score) for point in points]

    def get(self, ids: Sequence[str]) -> list[Stored]:
        """By id."""
        points = [point_id(name) for name in ids]
        records = _try(
            self.folder, lambda: self._shard.retrieve(points, with_payload=True, with_vector=False)
        )
        return [_stored(record) for record in records]

    def delete(self, ids: Sequence[str]) -> None:
        """Forget documents; their bytes go when the index is compacted."""
        self._update(lambda: qdrant.UpdateOperation.delete_points([point_id(name) for name in ids]))

    def documents(self) -> Iterator[Stored]:
        """All of them, a page at a time."""
        offset = None
        while True:
            request = qdrant.ScrollRequest(offset=offset, limit=PAGE, with_payload=True, with_vector=True)
            records, offset = _try(self.folder, lambda request=request: self._shard.scroll(request))  # type: ignore[misc]
            yield from map(_stored, records)
            if offset is None:
                return

    def count(self) -> int:
        """Of documents."""
        return int(_try(self.folder, lambda: self._shard.count(qdrant.CountRequest(exact=True))))

    def optimize(self) -> None:
        """Merge what was written in parts."""
        _try(self.folder, self._shard.optimize)
        _try(self.folder, self._shard.flush)

    def drop_log(self) -> None:
        """Remove the log, larger than all the rest, of an engine that was made here and whose files are written.

        Qdrant numbers updates by its log, and passes over those to a document that has a higher number already: the new
        log is brought as far as the old one was, by updates that change nothing.
        """
        self.close()
        shutil.rmtree(self.folder / "wal")
        self._shard = _try(self.folder, lambda: qdrant.EdgeShard.load(str(self.folder)))
        nothing = point_id("")  # no document has this name
        for _ in range(self._updates + 1):
            _try(self.folder, lambda: self._shard.update(qdrant.UpdateOperation.delete_points([nothing])))
        _try(self.folder, self._shard.flush)

    @property
    def log_bytes(self) -> int:
        """Disk taken by the log, which holds everything a second time."""
        return disk_usage(self.folder / "wal")

    def close(self) -> None:
        """Close the files."""
        _try(self.folder, self._shard.close)

    def _update(self, make: Callable[[], Any]) -> None:
        self._updates += 1
        _try(self.folder, lambda: self._shard.update(make()))
        _try(self.folder, self._shard.flush)

    def _check_room(self, size: int) -> None:
        """Whether the disk has room; the engine writes into mapped files, and a full disk would end the process."""
        free = shutil.disk_usage(self.folder).free
        if free < size * 3 + SPARE:
            raise IndexFileError(
                f"{self.folder}: the disk has {free / 1e6:,.0f} MB left, too few to write on. What was reported is safe."
            )


def _try(folder: Path, action: Callable[[], Result]) -> Result:
    """Whatever the engine raises, as one error that names the folder."""
    try:
        return action()
    except BaseException as error:
        # Its panics are no Exceptions.
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise IndexFileError(f"{folder}: {reason}") from error


def _stored(point: Any) -> Stored:
    payload = dict(point.payload or {})
    vector = point.vector.get("") if isinstance(point.vector, dict) else point.vector
    vectors = np.zeros((0, 0), np.float32) if vector is None else np.asarray(vector, dtype=np.float32)
    return Stored(str(payload.pop("id")), vectors, payload)


def _filter(labels: Sequence[str]) -> Any:
    if not labels:
        return None
    return qdrant.Filter(
        must=[qdrant.FieldCondition(key="labels", match=qdrant.MatchValue(value=label)) for label in labels]
    )
