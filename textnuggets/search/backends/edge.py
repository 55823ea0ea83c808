"""Index in a folder: Qdrant Edge as engine, inside this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import IndexFileError, MissingExtraError
from textnuggets.io.batching import batches
from textnuggets.io.disk import make_folder, sync_tree
from textnuggets.io.files import disk_usage
from textnuggets.io.folders import remove_stale
from textnuggets.io.progress import Progress
from textnuggets.search.backends import folder as files
from textnuggets.search.backends.base import Backend, Engine, Found, Stored
from textnuggets.search.backends.points import PAGE, label_filter, point_id, to_payload, to_stored
from textnuggets.search.manifest import Manifest

try:
    import qdrant_edge as qdrant
except ImportError as error:
    raise MissingExtraError("qdrant-edge-py", "search", "an index on disk") from error

BATCH = 128  # documents copied together when compacting
SPARE = 150_000_000  # bytes that must stay free on the disk: files grow in steps of 32 MB
DATATYPES = {
    "float32": qdrant.VectorStorageDatatype.Float32,
    "float16": qdrant.VectorStorageDatatype.Float16,
    "int8": qdrant.VectorStorageDatatype.Turbo8,  # eight bits per number, after a rotation
}
Result = TypeVar("Result")


class EdgeEngine(Engine):
    """Engine on a folder of Qdrant Edge's files; searches are exact."""

    def __init__(self, folder: Path, shard: Any) -> None:
        self.folder, self._shard = folder, shard
        self._updates = 0  # updates since it was created or opened here

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
        return cls(folder, _try(folder, lambda: qdrant.EdgeShard.load(str(folder))))

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
        points = _try(
            self.folder,
            lambda: self._shard.query(
                qdrant.QueryRequest(
                    query=qdrant.Query.Nearest(query.tolist()),
                    limit=k,
                    filter=label_filter(qdrant, labels),
                    with_vector=True,
                    with_payload=True,
                )
            ),
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
        return int(_try(self.folder, lambda: self._shard.count(qdrant.CountRequest(exact=True))))

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


class EdgeBackend(Backend):
    """Index in a folder, locked by the process that has it open.

    The manifest names the folder of the engine's files. It is written last when an index is created or compacted, so
    that a killed process leaves either the old index or the new one.
    """

    engine: EdgeEngine

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.folder = folder

    def exists(self) -> bool:
        """Return whether the folder has a manifest."""
        return (self.folder / files.MANIFEST).is_file()

    def create(self, manifest: Manifest) -> None:
        """Create the folder of an empty index and lock it."""
        files.check_is_free(self.folder)
        make_folder(self.folder)
        self._lock = files.lock_folder(self.folder)
        try:
            files.remove_engines(self.folder)
            self.engine = EdgeEngine.create(
                self.folder / manifest.engine, manifest.dimensions, manifest.dtype
            )
            files.write_count(self.folder, 0)
            files.write_manifest(self.folder, manifest)  # last: without it, the folder is not an index
        except BaseException:
            self._lock.release()
            raise
        self.manifest = manifest

    def read_manifest(self) -> Manifest:
        """Return the manifest in the folder."""
        return files.read_manifest(self.folder)

    def open(self) -> None:
        """Lock the folder, remove what an interrupted compaction left, and check that no documents are missing."""
        self.read_manifest()  # before locking, which would write to a folder that is not an index
        self._lock = files.lock_folder(self.folder)
        try:
            self.manifest = (
                self.read_manifest()
            )  # again: another process may have compacted it before the lock
            files.remove_engines(self.folder, keep=self.manifest.engine)
            remove_stale(self.folder)
            if not (self.folder / self.manifest.engine).is_dir():
                raise IndexFileError(f"{self.folder}: its vectors are missing ({self.manifest.engine}).")
            self.engine = EdgeEngine.open(self.folder / self.manifest.engine)
            self._check_count()
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Close the engine and release the lock."""
        try:
            self.engine.close()
        finally:
            self._lock.release()

    def save_count(self, deleting: int = 0) -> None:
        """Write the number of documents, minus the ones about to be deleted."""
        files.write_count(self.folder, self.engine.count() - deleting)

    def compact(self, show_progress_bar: bool) -> None:
        """Copy all documents to a new engine, which then replaces the old one."""
        count = self.engine.count()
        number = int(self.manifest.engine.rpartition("-")[2]) + 1
        manifest = replace(self.manifest, engine=f"engine-{number}")
        files.remove_engines(self.folder, keep=self.manifest.engine)
        compacted = EdgeEngine.create(self.folder / manifest.engine, manifest.dimensions, manifest.dtype)
        try:
            with Progress("compact", count, show_progress_bar) as progress:
                for batch in batches(self.engine.documents(), BATCH):
                    compacted.put(batch)
                    progress.add(len(batch))
            compacted.optimize()
            compacted.drop_log()
            if compacted.count() != count:
                raise IndexFileError(
                    f"{self.folder}: compacting kept {compacted.count():,} of {count:,} documents; the index is "
                    f"unchanged."
                )
        except BaseException:
            compacted.close()
            shutil.rmtree(self.folder / manifest.engine, ignore_errors=True)
            raise
        files.write_manifest(self.folder, manifest)  # from here on, the new files are the index
        self.engine.close()
        self.engine, self.manifest = compacted, manifest
        files.remove_engines(self.folder, keep=manifest.engine)

    def disk_usage(self) -> dict[str, int]:
        """Return the size of the folder, and how much of it `compact` would free."""
        return {"bytes": disk_usage(self.folder), "reclaimable_bytes": self.reclaimable_bytes}

    @property
    def reclaimable_bytes(self) -> int:
        """Bytes of the engine's log, which compacting removes."""
        return self.engine.log_bytes

    def _check_count(self) -> None:
        """Raise IndexFileError if documents are missing, which the engine does not always notice."""
        expected = files.read_count(self.folder)
        if (count := self.engine.count()) < expected:
            raise IndexFileError(
                f"{self.folder} is damaged: it has {count:,} documents, expected at least {expected:,}."
            )


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
