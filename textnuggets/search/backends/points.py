"""Documents as points of Qdrant, for both of its clients (folder and server)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import numpy as np

from textnuggets.errors import IndexFileError
from textnuggets.search.backends.base import Stored
from textnuggets.search.manifest import CHECK

PAGE = 256  # documents read at a time


def point_id(name: str) -> str:
    """Return the UUID under which a document is stored; Qdrant does not accept strings as ids."""
    return str(uuid5(NAMESPACE_URL, f"textnuggets:{name}"))


def to_payload(document: Stored) -> dict[str, Any]:
    """Return the payload of a document's point, which includes its id."""
    return {"id": document.id, **document.payload}


def to_stored(point: Any) -> Stored:
    """Return the document of a point; without vectors if they were not requested."""
    payload = dict(point.payload or {})
    # A folder returns vectors by name; the only one has no name.
    vector = point.vector.get("") if isinstance(point.vector, dict) else point.vector
    vectors = np.zeros((0, 0), np.float32) if vector is None else np.asarray(vector, dtype=np.float32)
    name = payload.pop("id", None)
    if not isinstance(name, str):
        raise IndexFileError(f"a document of the index is damaged: its id is {name!r}; {CHECK}.")
    return Stored(name, vectors, payload)


def label_filter(client: Any, labels: Sequence[str]) -> Any:
    """Return the condition that a document has all labels; None without labels.

    Args:
        client: Module with the client's classes `Filter`, `FieldCondition` and `MatchValue`.
        labels: Labels as stored in the payload.
    """
    if not labels:
        return None
    return client.Filter(
        must=[client.FieldCondition(key="labels", match=client.MatchValue(value=label)) for label in labels]
    )
