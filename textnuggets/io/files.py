"""Atomic file writes, output checks and content descriptions of files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from textnuggets.errors import ConfigError, InputError
from textnuggets.io.hashing import digest_bytes, digest_files


def disk_usage(folder: Path) -> int:
    """Return the bytes a folder occupies on disk; unused space in sparse files is not counted."""
    files = [file.stat() for file in folder.rglob("*") if file.is_file()]
    return sum(getattr(stat, "st_blocks", stat.st_size // 512) * 512 for stat in files)


def check_output(path: Path, source: str | None = None) -> None:
    """Raise InputError if a file cannot be written, before its content is computed.

    Args:
        path: File to write.
        source: Input file, which must not be overwritten.
    """
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder: name a file to write.")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist.")
    if source is not None and path.exists() and Path(source).exists() and path.samefile(source):
        raise InputError(f"{path} is the input file: write to another file.")


def describe(path: Path) -> list[int | str]:
    """Return size and hash of a file, or count and hash of a folder's files; independent of paths and dates."""
    if path.is_dir():
        parts = [describe(file) for file in sorted(path.rglob("*")) if file.is_file()]
        return [len(parts), digest_bytes(str(parts).encode())]
    return [path.stat().st_size, digest_files(path)]


def find_named(name: str, shipped: Path, what: str) -> Path:
    """Return the path of a TOML file, given as a path or as the name of a file in the folder `shipped`."""
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return path
    known = {file.stem: file for file in shipped.glob("*.toml")}
    if name not in known:
        raise ConfigError(f"no {what} {name!r}: name a .toml file, or one of {', '.join(sorted(known))}.")
    return known[name]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; move it to `path` on success."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())  # on disk before the rename
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; move it to `path` on success."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        put_in_place(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def put_in_place(folder: Path, path: Path) -> None:
    """Rename a folder to `path`, replacing any previous one."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb+") as written:
                os.fsync(written.fileno())  # on disk before the rename
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    folder.rename(path)
    shutil.rmtree(old, ignore_errors=True)
