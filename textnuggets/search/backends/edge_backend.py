"""Index in a folder: opening, locking and compacting it so that a killed process leaves a whole index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from textnuggets.errors import ConfigError, IndexFileError
from textnuggets.io.batching import batches
from textnuggets.io.copying import copy_sparse
from textnuggets.io.disk import make_folder
from textnuggets.io.files import disk_usage
from textnuggets.io.folders import remove_stale, temporary_folder
from textnuggets.io.progress import Progress
from textnuggets.search.backends import folder as files
from textnuggets.search.backends.base import Backend, Stored, rescaled
from textnuggets.search.backends.edge import EdgeEngine, check_room
from textnuggets.search.manifest import Manifest
from textnuggets.search.pools import LARGE
from textnuggets.search.sizes import Sizes, describe_sizes, sizes_after

COPY = "copy"  # name of the temporary folder of a reader
BATCH = 128  # documents copied together when compacting


class EdgeBackend(Backend):
    """Index in a folder, locked by the process that has it open.

    The manifest names the folder of the engine's files. Before an index is created or compacted, it is written to name
    the new folder as unfinished, and afterwards to name it as the index. So a killed process leaves either the old
    index or the new one, and the next one knows what to remove.
    """

    engine: EdgeEngine
    _copy: ExitStack | None = None  # removes the copy of a reader beside another process
    _sizes: Sizes | None  # of the documents; None if they are not known

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.folder = folder

    def exists(self) -> bool:
        """Return whether the folder has a manifest, other than that of an interrupted creation."""
        return files.is_index(self.folder)

    def create(self, manifest: Manifest, shards: int | None = None, replicas: int | None = None) -> None:
        """Create the folder of an empty index and lock it."""
        if shards is not None or replicas is not None:
            raise ConfigError(
                f"{self.folder} is a folder: only a collection on a server has shards and replicas."
            )
        files.check_is_free(self.folder)
        make_folder(self.folder)
        self._lock = files.lock_folder(self.folder)
        try:
            files.check_is_free(self.folder)  # again: another process may have created it before the lock
            if (self.folder / files.MANIFEST).exists():
                files.remove_engine(self.folder, self.read_manifest().engine)
            self._write(replace(manifest, complete=False))
            engine = EdgeEngine.create(self.folder / manifest.engine, manifest)
            files.write_count(self.folder, 0, Sizes())
            self._write(manifest)  # from here on, the folder is an index
            self._sizes = Sizes()
            self._use(engine)
        except BaseException:
            self._lock.release()
            raise

    def read_manifest(self) -> Manifest:
        """Return the manifest in the folder."""
        return files.read_manifest(self.folder)

    def open(self, read_only: bool = False) -> None:
        """Lock the folder, remove what an interrupted compaction left, and check for damage that is found fast.

        If another process has locked the folder, a reader works on a copy of the engine's files.
        """
        self.read_manifest()  # before locking, which would write to a folder that is not an index
        try:
            self._lock = files.lock_folder(self.folder)
        except files.LockedError:
            if not read_only:
                raise
            self._open_copy()
            return
        try:
            with files.lock_files(self.folder):
                self.manifest = self._read_complete()
                remove_stale(self.folder)
                self._remove_obsolete()
                self._check_files()
                self._use(EdgeEngine.open(self.folder / self.manifest.engine, self.manifest))
            self._check_count()
        except BaseException:
            self._lock.release()
            raise

    def _open_copy(self) -> None:
        """Open a copy of the engine's files as they are between two changes by the process that has the folder open.

        The engine cannot open files twice: the second process would change them under the first.
        """
        with ExitStack() as stack:
            place = stack.enter_context(temporary_folder(self.folder / COPY))
            with files.lock_files(self.folder):
                self.manifest = self._read_complete()
                self._check_files()
                check_room(place, disk_usage(self.folder / self.manifest.engine))
                copy_sparse(self.folder / self.manifest.engine, place / self.manifest.engine, skip="wal")
                _, self._sizes = files.read_count(self.folder)
            self.engine = EdgeEngine.open(place / self.manifest.engine, self.manifest)
            stack.callback(self.engine.close)
            self._check_count()
            self._copy = stack.pop_all()

    def _check_files(self) -> None:
        """Raise IndexFileError for missing files and for damage that is found fast."""
        if not (self.folder / self.manifest.engine).is_dir():
            raise IndexFileError(f"{self.folder}: its vectors are missing ({self.manifest.engine}).")
        for damage in files.find_damage(self.folder, self.manifest, small_only=True):
            raise IndexFileError(
                f"{self.folder} is damaged: {damage}. Restore it or build it again; "
                f"'textnuggets index check {self.folder}' lists all damaged files."
            )

    def _check_is_writer(self) -> None:
        if self._copy is not None:
            raise IndexFileError(
                f"{self.folder} is open in another process, so it can only be read: wait for that process."
            )

    def check_files(self) -> tuple[int, list[str]]:
        """Compare all files with the checksums that were taken when the index was compacted."""
        self.read_manifest()  # before locking, which would write to a folder that is not an index
        lock = files.lock_folder(self.folder)
        try:
            manifest = self._read_complete()
            return len(manifest.checksums or ()), list(files.find_damage(self.folder, manifest))
        finally:
            lock.release()

    def close(self) -> None:
        """Close the engine and release the lock, or remove the copy."""
        if self._copy is not None:
            self._copy.close()
            return
        try:
            with files.lock_files(self.folder):
                self.engine.close()
        finally:
            self._lock.release()

    @contextmanager
    def changing(self, removed: Sequence[Stored], added: Sequence[Stored] = ()) -> Iterator[None]:
        """Write the number and sizes of documents after a change.

        Before it, write the smaller number, since an index with fewer documents would be refused after a crash, and
        no sizes, since a crash leaves it unknown which documents were written.
        """
        self._check_is_writer()
        sizes, names = sizes_after(self._sizes, removed, added), {item.id for item in added}
        with files.lock_files(self.folder):
            self._save_count(self.engine.count() - sum(item.id not in names for item in removed), None)
            yield
            self._save_count(self.engine.count(), sizes)

    def compact(self, show_progress_bar: bool) -> None:
        """Copy all documents to a new engine, which then replaces the old one, and take its checksums."""
        self._check_is_writer()
        self._remove_obsolete()
        count, old = self.engine.count(), self.manifest
        name = files.unused_engine(self.folder, old.engine)
        new = replace(old, pooled=count >= LARGE if old.first_stage is None else old.first_stage)
        self._write(replace(old, obsolete=name))  # until it is complete
        try:
            compacted, sizes = self._copy_documents(self.folder / name, new, count, show_progress_bar)
            compacted.close()
            if files.read_count(self.folder) != (count, sizes):  # only then, to keep the old checksums valid
                self._save_count(count, sizes)
            checksums = files.take_checksums(self.folder, name)
            compacted = EdgeEngine.open(self.folder / name, new)
            compacted.flush()  # opening rewrites some files with the same content
        except BaseException:
            with suppress(OSError):  # otherwise it is removed when the index is opened
                self._remove_obsolete()
            raise
        # From here on, the new files are the index.
        with files.lock_files(self.folder):
            self._write(replace(new, engine=name, obsolete=old.engine, checksums=checksums))
            self.engine.close()
            self._use(compacted)
            self._remove_obsolete()

    def _copy_documents(
        self, folder: Path, manifest: Manifest, count: int, show_progress_bar: bool
    ) -> tuple[EdgeEngine, Sizes | None]:
        """Return a new engine that has all documents and no log, and the sizes of the documents."""
        sizes: Sizes | None = Sizes()
        compacted = EdgeEngine.create(folder, manifest)
        try:
            with Progress("compact", count, show_progress_bar) as progress:
                documents = self.engine.documents()
                if manifest.dtype == "int4":
                    documents = map(rescaled, documents)
                for batch in batches(documents, BATCH):
                    compacted.put(batch, durable=False)  # all of them are flushed at the end
                    sizes = sizes_after(sizes, (), batch)
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
            raise
        return compacted, sizes

    def disk_usage(self) -> dict[str, Any]:
        """Return the size of the index on disk, how much of it `compact` would free, and the sizes of the documents."""
        size = disk_usage(self.engine.folder)  # without copies of readers
        size += sum((self.folder / name).stat().st_size for name in (files.MANIFEST, files.COUNT))
        return {
            "bytes": size,
            "reclaimable_bytes": self.reclaimable_bytes,
            **describe_sizes(self._sizes, self.manifest, size),
        }

    @property
    def reclaimable_bytes(self) -> int:
        """Bytes of the engine's log, which compacting removes."""
        return self.engine.log_bytes

    def _read_complete(self) -> Manifest:
        manifest = self.read_manifest()
        if not manifest.complete:
            raise IndexFileError(
                f"{self.folder} is incomplete: its creation was interrupted. Create it again."
            )
        return manifest

    def _write(self, manifest: Manifest) -> None:
        files.write_manifest(self.folder, manifest)
        self.manifest = manifest

    def _save_count(self, count: int, sizes: Sizes | None) -> None:
        self._drop_checksums()
        files.write_count(self.folder, count, sizes)
        self._sizes = sizes

    def _use(self, engine: EdgeEngine) -> None:
        self.engine = engine
        engine.before_update = self._drop_checksums

    def _drop_checksums(self) -> None:
        """Record that the checksums do not hold any more, before a file is changed."""
        if self.manifest.checksums is not None:
            self._write(replace(self.manifest, checksums=None))

    def _remove_obsolete(self) -> None:
        """Remove the engine before a compaction, or what an interrupted compaction left."""
        if self.manifest.obsolete is not None:
            files.remove_engine(self.folder, self.manifest.obsolete)
            self._write(replace(self.manifest, obsolete=None))

    def _check_count(self) -> None:
        """Raise IndexFileError if documents are missing, which the engine does not always notice."""
        expected, self._sizes = files.read_count(self.folder)
        if (count := self.engine.count()) < expected:
            raise IndexFileError(
                f"{self.folder} is damaged: it has {count:,} documents, expected at least {expected:,}."
            )
