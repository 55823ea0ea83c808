"""Simulated crashes between two changes of names, and a record of what has been synced to disk."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from textnuggets.io.folders import is_temporary

UNSYNCED = (".lock", ".busy", ".unfinished")  # ends of names that hold nothing that must be kept
CHANGES = ("mkdir", "rename", "replace", "link", "symlink", "unlink", "remove", "rmdir")


class Crash(BaseException):
    """The end of the simulated process."""


class Names:
    """Calls that change a name below a folder, in order; the one with the number `crash_at` and all later ones fail.

    Later ones fail as well because a dead process cleans nothing up.
    """

    def __init__(self, root: Path, crash_at: int | None = None) -> None:
        self.root, self.crash_at = root, crash_at
        self.calls: list[str] = []

    def wrap(self, name: str, call: Callable[..., None]) -> Callable[..., None]:
        def wrapped(path: str | Path, *rest: object, **options: object) -> None:
            folder: Any = options.get("dir_fd")
            place = Path.cwd() / path if folder is None else path_of(folder) / path
            if not place.is_relative_to(self.root):
                return call(path, *rest, **options)
            if self.crash_at is not None and len(self.calls) >= self.crash_at:
                raise Crash(str(place))
            # Within rmtree, names are relative to an open folder.
            self.calls.append(f"{name} {place}" if folder is None else "rmtree")
            return call(path, *rest, **options)

        return wrapped


def path_of(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()


@contextmanager
def watching(root: Path, crash_at: int | None = None) -> Iterator[Names]:
    """Record the calls that change names below a folder; crash before the given one."""
    names = Names(root, crash_at)
    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            patch.setattr(os, name, names.wrap(name, getattr(os, name)))
        yield names


def crash_everywhere(
    prepare: Callable[[Path], None], run: Callable[[Path], object], tmp_path: Path
) -> Iterator[Path]:
    """Yield a folder after a crash at each point of a run, and once after a whole run.

    Within a long removal, only the first and last points are taken.

    Args:
        prepare: Fills a folder with the state before the run.
        run: Changes the folder.
        tmp_path: Folder for all of it.
    """
    whole = tmp_path / "whole"
    whole.mkdir()
    prepare(whole)
    with watching(whole) as names:
        run(whole)
    kinds = [call == "rmtree" for call in names.calls]
    points = [i for i in range(len(kinds)) if not all(kinds[max(0, i - 1) : i + 2])]
    assert points
    yield whole
    for point in points:
        folder = tmp_path / f"crash-{point}"
        folder.mkdir()
        prepare(folder)
        with watching(folder, point):
            try:
                run(folder)
            except Crash:
                pass
            else:
                raise AssertionError(f"no crash at {point}")
        yield folder


def contents(folder: Path) -> dict[str, str]:
    """Return the text of every file below a folder, empty folders included."""
    return {
        path.relative_to(folder).as_posix(): path.read_text() if path.is_file() else "a folder"
        for path in folder.rglob("*")
        if path.is_file() or not any(path.iterdir())
    }


class Synced:
    """Files by size and date, and folders by the names in them, as they were when they were last synced."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        """What was renamed before it was synced, and new names in folders that were not synced afterwards."""
        self._seen: dict[int, Any] = {}
        self._renamed: list[Path] = []

    def missing(self, root: Path, ignore: str = r"(?!)") -> list[str]:
        """Return what is not synced: the paths below a folder, and the folder, except those that match `ignore`."""
        return [
            str(path)
            for path in (root, *root.rglob("*"))
            if not (path.name.endswith(UNSYNCED) or re.search(ignore, str(path)) or self._has(path))
        ]

    def note_sync(self, descriptor: int) -> None:
        path = path_of(descriptor)
        self._seen[os.fstat(descriptor).st_ino] = _state(path)
        self._renamed = [target for target in self._renamed if target.parent != path]

    def note_rename(self, source: Path, target: Path) -> None:
        if any(map(is_temporary, target.parents)):
            return  # a removal
        if not target.name.endswith(".old"):
            below = [source, *source.rglob("*")] if source.is_dir() else [source]
            self.faults += [f"{path} before {target}" for path in below if not self._has(path)]
        self._renamed.append(Path.cwd() / target)

    def end(self) -> None:
        self.faults += map(str, self._renamed)

    def _has(self, path: Path) -> bool:
        seen, now = self._seen.get(path.stat().st_ino), _state(path)
        # The loss of a removal is harmless.
        return bool(seen is not None and (now <= seen if isinstance(now, set) else now == seen))


def _state(path: Path) -> set[str] | tuple[int, int]:
    if path.is_dir():
        return {
            item.name
            for item in path.iterdir()
            if not is_temporary(item) and not item.name.endswith(UNSYNCED)
        }
    found = path.stat()
    return found.st_size, found.st_mtime_ns


@contextmanager
def recording() -> Iterator[Synced]:
    """Record syncs and renames of this process."""
    synced = Synced()
    fsync, replace, rename = os.fsync, os.replace, os.rename
    with pytest.MonkeyPatch.context() as patch:

        def syncing(descriptor: int) -> None:
            fsync(descriptor)
            synced.note_sync(descriptor)

        def renaming(call: Callable[..., None]) -> Callable[..., None]:
            def wrapped(source: str | Path, target: str | Path, **options: object) -> None:
                synced.note_rename(Path(source), Path(target))
                call(source, target, **options)

            return wrapped

        patch.setattr(os, "fsync", syncing)
        patch.setattr(os, "replace", renaming(replace))
        patch.setattr(os, "rename", renaming(rename))
        yield synced
    synced.end()
