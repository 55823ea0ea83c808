"""Digests of bytes, JSON values and files, as hexadecimal strings.

Digests name cache files and are stored in indexes, nugget files and results, so they must not change between
versions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BLOCK = 1 << 20  # bytes read from a file at a time
SPARSE_BLOCK = 1 << 16  # the same for `digest_sparse`, whose result depends on it


def digest_bytes(*parts: bytes | memoryview) -> str:
    """Return the SHA-256 of the concatenated parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def digest_json(value: Any) -> str:
    """Return the SHA-256 of a value as JSON with sorted keys."""
    return digest_bytes(json.dumps(value, sort_keys=True).encode())


def digest_files(*paths: Path) -> str:
    """Return the SHA-256 of the concatenated contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as stream:
            while block := stream.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()


def digest_sparse(path: Path) -> str:
    """Return the SHA-256 of the size of a file and of its blocks that are not zero, with their positions.

    It covers the whole content, and is fast for files that reserve much more space than they use.
    """
    digest = hashlib.sha256()
    position = 0
    with path.open("rb") as stream:
        while block := stream.read(SPARSE_BLOCK):
            if block.count(0) < len(block):
                digest.update(position.to_bytes(8, "little") + len(block).to_bytes(8, "little") + block)
            position += len(block)
    digest.update(position.to_bytes(8, "little"))
    return digest.hexdigest()


def short_digest(parts: Iterable[bytes], size: int) -> str:
    """Return the BLAKE2b digest of the concatenated parts, `size` bytes long (twice as many digits)."""
    digest = hashlib.blake2b(digest_size=size)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
