"""Packing of metadata and white space into the payload of a stored document, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from textnuggets.errors import IndexFileError, InputError
from textnuggets.io.documents import is_unicode
from textnuggets.io.hashing import short_digest
from textnuggets.model.layout import Layout

DEEPEST = 100  # levels of nested metadata; parsers of JSON have limits, too


def pack_metadata(metadata: Mapping[str, Any]) -> str:
    """Return metadata as JSON; raise InputError, with the key, if it would not come back as it is.

    It is stored as text because engines round integers beyond 64 bits and some floats.
    """
    for key, value in metadata.items():
        try:
            _check_json({key: value}, DEEPEST + 1)
        except (TypeError, ValueError) as error:
            raise InputError(f"{key!r} ({error}).") from error
    return json.dumps(metadata, sort_keys=True, ensure_ascii=False)


def digest_content(metadata: str, text: str) -> str:
    """Return a hash of a document's packed metadata and text."""
    return short_digest([f"{metadata}\n{text}".encode()], 12)


def _check_json(value: Any, depth: int) -> None:
    """Raise TypeError or ValueError if a value is not made of the types of JSON, or nested too deeply."""
    if not depth:
        raise ValueError(f"it has more than {DEEPEST} levels")
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("keys must be strings")
        for item in (*value, *value.values()):
            _check_json(item, depth - 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_json(item, depth - 1)
    elif isinstance(value, str) and not is_unicode(value):
        raise ValueError("it contains an unpaired surrogate")
    else:
        json.dumps(
            value, allow_nan=False
        )  # which refuses other types, infinities and integers of thousands of digits


def unpack_metadata(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata in the payload of a document; raise IndexFileError if it is damaged."""
    stored = payload.get("metadata") or {}  # an object in indexes of early versions
    try:
        metadata = json.loads(stored) if isinstance(stored, str) else stored
    except (ValueError, RecursionError) as error:
        raise IndexFileError(f"its metadata is damaged ({error}).") from error
    if not isinstance(metadata, dict):
        raise IndexFileError(f"its metadata is damaged ({type(metadata).__name__} instead of an object).")
    return metadata


def pack_spaces(layout: Layout) -> list[Any]:
    """Return the white space of a text as JSON."""
    return [list(layout.words), [list(run) for run in layout.runs]]
