"""Atomic file writes, output checks and content descriptions of files."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from textnuggets.errors import ConfigError, InputError
from textnuggets.io.disk import follow_link, rename, sync_file
from textnuggets.io.folders import temporary_folder
from textnuggets.io.hashing import digest_bytes, digest_files


def disk_usage(folder: Path) -> int:
    """Return the bytes a folder occupies on disk; unused space in sparse files is not counted."""
    files = [file.stat() for file in folder.rglob("*") if file.is_file()]
    return sum(getattr(stat, "st_blocks", stat.st_size // 512) * 512 for stat in files)


DESCRIPTORS = re.compile(r"/dev(/fd)?|/proc/\d+(/task/\d+)?/fd")  # folders of names for open files


def check_output(path: Path, *inputs: str | Path | None, stream: bool = True) -> None:
    """Raise InputError if a file cannot be written or is an input, before its content is computed.

    Args:
        path: File to write.
        inputs: What is read, as for `check_not_read`.
        stream: Whether a device or pipe can be written to.
    """
    check_not_read([path], inputs)
    target = find_target(path)
    if target is None:
        if not stream:
            raise InputError(f"{path} is a device or pipe: name a file to write.")
        return
    if not target.parent.is_dir():
        raise InputError(f"{path}: the folder {target.parent} does not exist.")


def check_not_read(outputs: Iterable[Path], inputs: Iterable[str | Path | None]) -> None:
    """Raise InputError if a file to write is one that is read, also if it has another name or is a link to it.

    Args:
        outputs: Files to write; they may be missing.
        inputs: Files, folders with all files in them, or `-` for standard input. Anything else, such as a hub id or
            None, is ignored.
    """
    written = {found: path for path in outputs if (found := _identity(path)) is not None}
    if not written:
        return
    for source in inputs:
        files = _files(source)
        for file in files:
            if (found := _identity(file)) in written:
                path = written[found]
                what = "the input file" if len(files) == 1 else f"a file of the input {source}"
                raise InputError(f"{path} is {what}: write to another file.")


def _files(source: str | Path | None) -> list[Path | int]:
    """Return the files of an input; standard input as its descriptor."""
    if source is None:
        return []
    if source == "-":
        try:
            return [sys.stdin.fileno()]
        except (AttributeError, OSError, ValueError):  # closed, or not a file
            return []
    path = Path(source)
    return [path, *path.rglob("*")] if path.is_dir() else [path]


def _identity(path: Path | int) -> tuple[int, int] | None:
    """Return the device and number of a regular file, which all its names share."""
    try:
        found = os.stat(path)  # noqa: PTH116  takes descriptors as well
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def describe(path: Path) -> list[int | str]:
    """Return size and hash of a file, or count and hash of a folder's files; independent of paths and dates."""
    if path.is_dir():
        parts = [describe(file) for file in sorted(path.rglob("*")) if file.is_file()]
        return [len(parts), digest_bytes(str(parts).encode())]
    return [path.stat().st_size, digest_files(path)]


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; raise InputError if it has none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}).") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a JSON object, got {type(content).__name__}.")
    return content


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file; raise ConfigError if it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read ({error}).") from error
    except (ValueError, RecursionError) as error:  # also an integer of too many digits
        raise ConfigError(f"{path}: invalid TOML: {error}.") from error


def find_named(name: str, shipped: Path, what: str) -> Path:
    """Return the path of a TOML file, given as a path or as the name of a file in the folder `shipped`."""
    path = Path(name)
    with suppress(OSError):  # such as a name that is too long
        if path.suffix == ".toml" or path.is_file():
            return path
    known = {file.stem: file for file in shipped.glob("*.toml")}
    if name not in known:
        raise ConfigError(f"no {what} {name!r}: name a .toml file, or one of {', '.join(sorted(known))}.")
    return known[name]


def find_target(path: Path) -> Path | None:
    """Return the regular file to replace, links resolved, or None for a device or pipe, which is written to.

    Raise InputError for anything else, such as a folder or a socket.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return follow_link(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}).") from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{str(path)!r} is a folder: name a file to write.")
    # /dev/stdout may be a regular file, but others write to it as well.
    is_open_file = stat.S_ISREG(mode) and DESCRIPTORS.fullmatch(os.path.realpath(path.parent))
    if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or is_open_file:
        return None
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is a block device or a socket: name a file to write.")
    return follow_link(path)


def open_stream(path: Path) -> IO[bytes]:
    """Open a device, a pipe or a name of an open file such as /dev/stdout for writing."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; move it to `path` on success, or copy it into a device or pipe."""
    target = find_target(path)
    if target is None:
        with TemporaryDirectory() as folder:
            temporary = Path(folder) / path.name
            yield temporary
            with temporary.open("rb") as source, open_stream(path) as stream:
                shutil.copyfileobj(source, stream)
        return
    with temporary_folder(target) as folder:
        temporary = folder / target.name
        yield temporary
        sync_file(temporary)
        rename(temporary, target)
