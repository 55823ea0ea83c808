"""Atomic replacement and removal of folders, with recovery from crashes: a folder under its final name is complete.

.NAME.1a2b3c4d.tmp/   temporary files for NAME; locked by the process that uses them, removed by the next writer of NAME
.NAME.old/            the previous version of the folder NAME, between the two renames of its replacement
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from textnuggets.io.disk import follow_link, rename, sync_folder, sync_tree

try:
    import fcntl
except ImportError:  # on Windows, temporary folders of ended processes stay
    fcntl = None  # type: ignore[assignment]

TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.tmp")
OLD = re.compile(r"\.(?P<name>.+)\.old")


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Yield an empty hidden folder beside `path`, on the same disk; remove it with its content at the end."""
    remove_stale(path.parent, path.name)
    folder, descriptor = _new_folder(path)
    try:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def remove_stale(folder: Path, name: str | None = None) -> None:
    """Remove temporary folders of processes that have ended.

    Args:
        folder: Folder in which to look.
        name: File or folder that they were made for; any by default.
    """
    for path in _matching(folder, TEMPORARY, name):
        with _holding(path) as has_lock:
            if has_lock:
                shutil.rmtree(path, ignore_errors=True)


def is_temporary(path: Path) -> bool:
    """Return whether a path has the name of a temporary folder."""
    return TEMPORARY.fullmatch(path.name) is not None


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; move it to `path` on success."""
    path = follow_link(path)
    with temporary_folder(path) as temporary:
        folder = temporary / path.name
        folder.mkdir()
        yield folder
        put_in_place(folder, path)


def put_in_place(folder: Path, path: Path) -> None:
    """Rename a folder to `path`, replacing any previous one."""
    path = follow_link(path)
    recover_folder(path)
    sync_tree(folder)
    if not path.is_dir():
        rename(folder, path)
        return
    try:
        # Locked, so that no other process recovers the old folder between the two renames.
        with _holding(path, wait=True):
            rename(path, _old(path))
            rename(folder, path)
    finally:
        recover_folder(path)


def recover_folder(path: Path) -> None:
    """End an interrupted replacement of a folder: remove the old version, or restore it if there is no new one."""
    path = follow_link(path)
    old = _old(path)
    with _holding(old, wait=True) as has_lock:  # waits for a process that is replacing it
        if has_lock is not False and old.is_dir():
            if path.exists():
                remove_folder(old, path)
            else:
                rename(old, path)


def recover_folders(folder: Path) -> None:
    """Restore all folders in a folder whose replacement was interrupted."""
    for old in _matching(folder, OLD):
        recover_folder(folder / OLD.fullmatch(old.name)["name"])  # type: ignore[index]


def remove_folder(folder: Path, beside: Path | None = None) -> None:
    """Remove a folder; it disappears at once, so that a crash never leaves half of it under its name.

    Args:
        folder: Folder to remove; it may be missing.
        beside: Path whose temporary folder it is moved to; its own by default.
    """
    with temporary_folder(beside or folder) as temporary, suppress(FileNotFoundError):
        folder.replace(temporary / folder.name)
        sync_folder(folder.parent)


def _old(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _matching(folder: Path, pattern: re.Pattern[str], name: str | None = None) -> list[Path]:
    """Return the folders in a folder whose names match a pattern; with a name, only folders made for it."""
    try:
        paths = list(folder.iterdir())
    except OSError:  # missing, or not readable
        return []
    found = [(path, pattern.fullmatch(path.name)) for path in paths]
    return [path for path, match in found if match and name in (None, match["name"]) and path.is_dir()]


# ---------------------------------------------------------------- locks, released when a process ends


def _new_folder(path: Path) -> tuple[Path, int]:
    """Create a temporary folder; return it and the descriptor that holds its lock."""
    while True:
        folder = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        folder.mkdir()
        with suppress(FileNotFoundError):  # another process took it for stale before it was locked
            descriptor = _open(folder)
            if _lock(descriptor, wait=False) is not False and folder.is_dir():
                return folder, descriptor
            os.close(descriptor)


@contextmanager
def _holding(folder: Path, wait: bool = False) -> Iterator[bool | None]:
    """Lock a folder within the context, and yield the result of `_lock`; False if the folder does not exist."""
    try:
        descriptor = _open(folder)
    except (FileNotFoundError, NotADirectoryError):
        yield False
        return
    try:
        yield _lock(descriptor, wait)
    finally:
        os.close(descriptor)


def _open(folder: Path) -> int:
    return os.open(folder if fcntl else os.devnull, os.O_RDONLY)


def _lock(descriptor: int, wait: bool) -> bool | None:
    """Return whether an open folder is locked for this descriptor; None if folders cannot be locked here."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # some network filesystems
        return None
    return True
