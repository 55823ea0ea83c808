"""Digests of large files, remembered in the user's cache folder with the size and time of the files."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from textnuggets.errors import TextnuggetsError
from textnuggets.io.disk import make_folder
from textnuggets.io.files import replacing
from textnuggets.io.hashing import digest_bytes

CACHE = "~/.cache/textnuggets/fingerprints"
SUFFIXES = (".json", ".safetensors")


def remember_digest(folder: Path, checksum: str, compute: Callable[[], str]) -> str:
    """Return a digest from the cache, or compute and store it; a cache that cannot be used changes nothing.

    Args:
        folder: Folder of the files that the digested content was read from.
        checksum: Checksum of the content in memory, which may have changed since it was read.
        compute: Computes the digest; called unless the cache has it for the same files and the same checksum.
    """
    try:
        path = Path(CACHE).expanduser() / f"{digest_bytes(str(folder.resolve()).encode())[:32]}.json"
        state = {"files": _state(folder), "checksum": checksum}
    except (OSError, RuntimeError):  # such as a user without a home folder
        return compute()
    try:
        stored: Any = json.loads(path.read_text(encoding="utf-8"))
        if stored["state"] == state and isinstance(stored["digest"], str):
            return stored["digest"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # no entry, or a damaged one
        pass
    digest = compute()
    with suppress(OSError, TextnuggetsError):
        make_folder(path.parent)
        with replacing(path) as temporary:
            temporary.write_text(json.dumps({"state": state, "digest": digest}), encoding="utf-8")
    return digest


def _state(folder: Path) -> list[list[Any]]:
    """Return name, size and time of the files of a model."""
    files = sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)
    return [[file.name, (about := file.stat()).st_size, about.st_mtime_ns] for file in files]
