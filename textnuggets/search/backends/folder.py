"""Files around the engine in the folder of an index: manifest, document count and lock.

index.json    the manifest; names the folder of the engine's files
engine-N/     the engine's files
documents     how many documents the index must have at least
.lock         locked by the process that has the index open
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from filelock import FileLock, Timeout

from textnuggets.errors import IndexFileError
from textnuggets.io.files import replacing
from textnuggets.io.folders import is_temporary
from textnuggets.search.manifest import Manifest

MANIFEST, COUNT, LOCK, ENGINES = "index.json", "documents", ".lock", "engine-*"


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of an index; raise IndexFileError if it is missing or damaged."""
    path = folder / MANIFEST
    if not path.is_file():
        raise IndexFileError(f"{folder} is not an index: it has no {MANIFEST}.")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise IndexFileError(f"{path} is damaged ({error}).") from error
    return Manifest.read(data, str(folder))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest atomically."""
    with replacing(folder / MANIFEST) as temporary:
        temporary.write_text(json.dumps(asdict(manifest), indent=1) + "\n", encoding="utf-8")


def read_count(folder: Path) -> int:
    """Return the number of documents that the index must have at least."""
    try:
        return int((folder / COUNT).read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise IndexFileError(f"{folder / COUNT} is missing or damaged ({error}).") from error


def write_count(folder: Path, count: int) -> None:
    """Write the number of documents that the index must have at least, atomically."""
    with replacing(folder / COUNT) as temporary:
        temporary.write_text(str(count), encoding="ascii")


def check_is_free(folder: Path) -> None:
    """Raise IndexFileError if a folder has files that do not belong to an index whose creation was interrupted."""
    if folder.exists() and not folder.is_dir():
        raise IndexFileError(f"{folder} is a file: name a folder.")
    if folder.is_dir() and any(
        file.name not in (LOCK, COUNT) and not file.match(ENGINES) and not is_temporary(file)
        for file in folder.iterdir()
    ):
        raise IndexFileError(f"{folder} already exists: open it, or name another folder.")


def remove_engines(folder: Path, keep: str | None = None) -> None:
    """Remove the engine folders that an interrupted creation or compaction left, except `keep`."""
    for path in folder.glob(ENGINES):
        if path.name != keep:
            shutil.rmtree(path)


def lock_folder(folder: Path) -> FileLock:
    """Lock an index for this process; the operating system releases the lock when the process ends."""
    lock = FileLock(folder / LOCK, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise IndexFileError(
            f"{folder} is open in another process: wait for it, or use a Qdrant server for several at once."
        ) from error
    except OSError as error:
        raise IndexFileError(f"{folder} cannot be locked ({error}).") from error
    return lock
