"""Sizes of the documents of an index: vectors, tokens and bytes of text, counted as documents come and go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any

from textnuggets.errors import IndexFileError
from textnuggets.search.backends.base import Stored
from textnuggets.search.layout_bytes import unpack_windows
from textnuggets.search.manifest import Manifest, bytes_per_vector


@dataclass(frozen=True)
class Sizes:
    """Sums over documents."""

    vectors: int = 0
    """Number of vectors."""
    tokens: int = 0
    """Number of tokens of the texts, including special tokens."""
    text_bytes: int = 0
    """Bytes of the texts in UTF-8, stored or not."""

    @classmethod
    def total(cls, documents: Iterable[Stored]) -> Sizes | None:
        """Return the sizes of stored documents; None if one of them is damaged."""
        total = cls()
        for document in documents:
            try:
                total = total.plus(cls._of(document))
            except IndexFileError:
                return None
        return total

    @classmethod
    def _of(cls, document: Stored) -> Sizes:
        payload = document.payload
        windows = unpack_windows(payload)
        text, size = payload.get("text"), payload.get("text_bytes")
        if isinstance(text, str):
            size = len(text.encode("utf-8"))
        elif not isinstance(size, int):  # encoded without its text: taken as one byte per character
            size = int(windows[:, 3].max(initial=0))
        return cls(int(windows[:, 0].sum()), int(windows[:, 1].sum()), size)

    def plus(self, other: Sizes, sign: int = 1) -> Sizes:
        """Return the sums of both; with the sign -1, the differences."""
        return Sizes(*(a + sign * b for a, b in zip(astuple(self), astuple(other), strict=True)))


def sizes_after(sizes: Sizes | None, removed: Iterable[Stored], added: Iterable[Stored]) -> Sizes | None:
    """Return the sizes after documents are removed and others added; None if they are not known."""
    fewer, more = Sizes.total(removed), Sizes.total(added)
    return None if sizes is None or fewer is None or more is None else sizes.plus(fewer, -1).plus(more)


def describe_sizes(sizes: Sizes | None, manifest: Manifest, bytes_on_disk: int) -> dict[str, Any]:
    """Return the sizes of an index and its bytes per token; None for what is not known."""
    vectors, tokens, text_bytes = (None,) * 3 if sizes is None else astuple(sizes)
    vector_bytes = (
        None if vectors is None else vectors * bytes_per_vector(manifest.dimensions, manifest.dtype)
    )

    def per(count: int | None, parts: int | None) -> float | None:
        return round(count / parts, 2) if parts and count is not None else None

    return {
        "text_bytes": text_bytes,
        "tokens": tokens,
        "vectors": vectors,
        "vector_bytes": vector_bytes,
        "bytes_per_token": per(bytes_on_disk, tokens),
        "vector_bytes_per_token": per(vector_bytes, tokens),
        "bytes_per_vector": per(bytes_on_disk, vectors),
    }
