"""Files around the engine in the folder of an index: manifest, checksums, document count and lock.

index.json    the manifest; names the folder of the engine's files, and has their checksums
engine-N/     the engine's files
documents     how many documents the index must have at least, and the sums of their sizes if these are known
.lock         locked by the process that has the index open
.busy         locked while files change, or are copied for another reader

Nothing is removed from the folder but the engine's files that the manifest names, and temporary files of its own.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from textnuggets.errors import IndexFileError
from textnuggets.io.files import replacing
from textnuggets.io.folders import is_temporary
from textnuggets.io.hashing import digest_json, digest_sparse
from textnuggets.search.manifest import Manifest
from textnuggets.search.sizes import Sizes

MANIFEST, COUNT, LOCK, BUSY = "index.json", "documents", ".lock", ".busy"
DIGEST = "digest"  # key of the manifest's own digest
BUSY_SECONDS = 300  # to wait for a change or a copy of files to end
SMALL = 1 << 20  # bytes; files up to this size are compared with their checksums whenever an index is opened


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of an index; raise IndexFileError if it is missing or damaged."""
    path = folder / MANIFEST
    if not path.is_file():
        raise IndexFileError(f"{folder} is not an index: it has no {MANIFEST}.")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise IndexFileError(f"{path} is damaged ({error}).") from error
    digest = data.pop(DIGEST, None) if isinstance(data, dict) else None
    manifest = Manifest.read(data, str(folder))
    if digest not in (None, digest_json(data)):  # None in indexes of early versions
        raise IndexFileError(f"{path} is damaged: it does not match its digest.")
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest atomically, with its digest."""
    data = asdict(manifest)
    with replacing(folder / MANIFEST) as temporary:
        text = json.dumps({**data, DIGEST: digest_json(data)}, indent=1)
        temporary.write_text(text + "\n", encoding="utf-8")


def read_count(folder: Path) -> tuple[int, Sizes | None]:
    """Return the number of documents that the index must have at least, and their sizes.

    The sizes are None if an early version wrote to the index, or a process was killed while it did.
    """
    try:
        count, *sizes = map(int, (folder / COUNT).read_text(encoding="ascii").split(" "))
        return count, Sizes(*sizes) if sizes else None
    except (OSError, ValueError, TypeError) as error:
        raise IndexFileError(f"{folder / COUNT} is missing or damaged ({error}).") from error


def write_count(folder: Path, count: int, sizes: Sizes | None) -> None:
    """Write the number of documents that the index must have at least and their sizes, atomically."""
    numbers = [count, *(() if sizes is None else astuple(sizes))]
    with replacing(folder / COUNT) as temporary:
        temporary.write_text(" ".join(map(str, numbers)), encoding="ascii")


def is_index(folder: Path) -> bool:
    """Return whether a folder has a manifest, damaged or not, other than that of an interrupted creation."""
    try:
        return read_manifest(folder).complete
    except IndexFileError:
        return (folder / MANIFEST).is_file()


def check_is_free(folder: Path) -> None:
    """Raise IndexFileError unless a folder is missing, empty or what an interrupted creation of an index left."""
    if is_index(folder):
        raise IndexFileError(f"{folder} already exists: open it, or name another folder.")
    if folder.exists() and not folder.is_dir():
        raise IndexFileError(f"{folder} is a file: name a folder.")
    if not folder.is_dir() or (folder / MANIFEST).is_file():
        return
    for path in folder.iterdir():
        is_lock = path.name in (LOCK, BUSY) and path.is_file() and not path.stat().st_size
        if not is_lock and not is_temporary(path):
            raise IndexFileError(
                f"{folder} already exists, is not empty ({path.name}) and is not an index: name another folder."
            )


def remove_engine(folder: Path, name: str) -> None:
    """Remove a folder of the engine's files that the manifest names, unless it is missing."""
    if (folder / name).exists():
        shutil.rmtree(folder / name)


def unused_engine(folder: Path, current: str) -> str:
    """Return a name for the engine that replaces the current one; nothing of that name exists."""
    number = int(current.rpartition("-")[2]) + 1
    while (folder / f"engine-{number}").exists():
        number += 1
    return f"engine-{number}"


# ---------------------------------------------------------------- checksums


def take_checksums(folder: Path, engine: str) -> dict[str, list[Any]]:
    """Return size and digest of the document count and of every file of an engine that is not open."""
    return {
        path.relative_to(folder).as_posix(): [path.stat().st_size, _digest(path)]
        for path in (folder / COUNT, *_engine_files(folder, engine))
    }


def find_damage(folder: Path, manifest: Manifest, small_only: bool = False) -> Iterator[str]:
    """Yield a description of each file that differs from its checksum, is missing, or was added.

    Args:
        folder: Folder of the index.
        manifest: Its manifest; without checksums, no damage is found.
        small_only: Whether to compare only the sizes of large files, which is fast.
    """
    if manifest.checksums is None:
        return
    for name, (size, digest) in manifest.checksums.items():
        path = folder / name
        if not path.is_file():
            yield f"{name} is missing"
        elif (found := path.stat().st_size) != size:
            yield f"{name} has {found:,} bytes instead of {size:,}"
        elif (size <= SMALL or not small_only) and digest not in (_digest(path), digest_sparse(path)):
            yield f"{name} has other content than when it was written"
    for path in _engine_files(folder, manifest.engine):
        name = path.relative_to(folder).as_posix()
        if name not in manifest.checksums:
            yield f"{name} was added"


def _digest(path: Path) -> str:
    """Return a digest of a file; that of JSON does not depend on the order of keys, which the engine changes."""
    if path.suffix == ".json":
        with suppress(ValueError, RecursionError):
            return digest_json(json.loads(path.read_bytes()))
    return digest_sparse(path)


def _engine_files(folder: Path, engine: str) -> list[Path]:
    return sorted(path for path in (folder / engine).rglob("*") if path.is_file())


# ---------------------------------------------------------------- lock


class LockedError(IndexFileError):
    """An index that another process has open."""


def lock_folder(folder: Path) -> FileLock:
    """Lock an index for this process; the operating system releases the lock when the process ends."""
    return _lock(folder, LOCK, 0, "wait for it, or use a Qdrant server for several at once")


def lock_files(folder: Path) -> FileLock:
    """Lock the files of an index while they change or are copied, waiting for others that do."""
    return _lock(folder, BUSY, BUSY_SECONDS, f"it has changed files for {BUSY_SECONDS} s; try again")


def _lock(folder: Path, name: str, seconds: float, advice: str) -> FileLock:
    lock = FileLock(folder / name, thread_local=False)
    try:
        lock.acquire(timeout=seconds)
    except Timeout as error:
        raise LockedError(f"{folder} is open in another process: {advice}.") from error
    except OSError as error:
        raise IndexFileError(f"{folder} cannot be locked ({error}).") from error
    return lock
