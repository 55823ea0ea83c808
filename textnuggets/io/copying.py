"""Copies of folders whose files reserve much more space than they use."""

from __future__ import annotations

from pathlib import Path

from textnuggets.io.hashing import SPARSE_BLOCK


def copy_sparse(source: Path, target: Path, skip: str) -> None:
    """Copy a folder to a new one; blocks of zeros take no space in the copies.

    Args:
        source: Folder to copy.
        target: Folder that does not exist.
        skip: Name of a subfolder that is left out.
    """
    target.mkdir()
    for path in source.iterdir():
        if path.is_file():
            _copy_file(path, target / path.name)
        elif path.name != skip:
            copy_sparse(path, target / path.name, skip)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as read, target.open("wb") as written:
        size = 0
        while block := read.read(SPARSE_BLOCK):
            size += len(block)
            if block.count(0) < len(block):
                written.write(block)
            else:
                written.seek(size)
        written.truncate(size)
