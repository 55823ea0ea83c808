"""Checksums of cached files: a file without its checksum, or with another content, is computed again.

NAME            the cached file
NAME.sha256     its size and SHA-256, written after it
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

from textnuggets.errors import TextnuggetsWarning
from textnuggets.io.files import describe, replacing


def seal(path: Path) -> None:
    """Write the checksum of a complete file."""
    with replacing(_checksum(path)) as temporary:
        temporary.write_text(json.dumps(describe(path)), encoding="ascii")


def is_intact(path: Path) -> bool:
    """Return whether a file has the content that was sealed; warn if it is damaged."""
    if not path.is_file() or not _checksum(path).is_file():
        return False
    try:
        sealed = json.loads(_checksum(path).read_text(encoding="ascii"))
    except (ValueError, RecursionError):
        sealed = None
    if sealed != describe(path):
        warnings.warn(f"{path} is damaged: it is computed again.", TextnuggetsWarning, stacklevel=2)
        return False
    return True


def _checksum(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")
