"""Durable changes to files: syncs, renames, new folders and appended lines are on disk when a call returns."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path


def follow_link(path: Path) -> Path:
    """Return what a symbolic link points to, whether it exists or not; return any other path unchanged."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def sync_file(path: Path) -> None:
    """Wait until the content of a file is on disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    if os.name == "nt":  # Windows cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network filesystems cannot sync folders
            raise
    finally:
        os.close(descriptor)


def sync_files(folder: Path) -> None:
    """Wait until the files of a folder, but not its subfolders, are on disk; ignore files that are removed meanwhile."""
    for path in folder.iterdir():
        if path.is_file():
            with suppress(FileNotFoundError):
                sync_file(path)
    sync_folder(folder)


def sync_tree(folder: Path) -> None:
    """Wait until everything in a folder is on disk; ignore what is removed meanwhile."""
    for parent, _, _ in os.walk(folder, topdown=False):
        with suppress(FileNotFoundError):
            sync_files(Path(parent))


def rename(source: Path, target: Path) -> None:
    """Rename a file or folder, replacing a file or an empty folder; its content must have been synced before."""
    source.replace(target)
    sync_folder(target.parent)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, unless they exist."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def append(path: Path, text: str) -> None:
    """Append text to a file, which is created if it does not exist."""
    is_new = not path.exists()
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync_folder(path.parent)
