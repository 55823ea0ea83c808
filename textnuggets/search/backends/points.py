"""Documents as points of Qdrant, for both of its clients (folder and server)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import numpy as np

from textnuggets.errors import IndexFileError
from textnuggets.search.backends.base import Stored, Words
from textnuggets.search.manifest import CHECK, Manifest
from textnuggets.search.pools import pool

PAGE = 256  # documents read at a time
POOLS, WORDS = "pools", "words"  # names of the other vectors of a point
FUSED = 100  # documents by vectors and by words whose ranks are fused, at least
RANK = 60  # added to ranks before their reciprocals are summed, as usual (Cormack et al., 2009)


def point_id(name: str) -> str:
    """Return the UUID under which a document is stored; Qdrant does not accept strings as ids."""
    return str(uuid5(NAMESPACE_URL, f"textnuggets:{name}"))


def nuggets_name(manifest: Manifest) -> str:
    """Return the name of the vector that holds the nuggets; it has none unless there is another dense one."""
    return "nuggets" if manifest.pooled else ""


def to_vectors(document: Stored, manifest: Manifest, sparse: Any) -> Any:
    """Return the vectors of a document's point.

    Args:
        document: Document to store.
        manifest: Settings of its index.
        sparse: The client's class of sparse vectors.
    """
    nuggets = document.vectors.tolist()
    if not (manifest.pooled or manifest.words):
        return nuggets
    vectors = {nuggets_name(manifest): nuggets}
    if manifest.pooled:
        vectors[POOLS] = pool(document.vectors).tolist()
    if manifest.words and document.words is not None and document.words.indices:
        vectors[WORDS] = sparse(indices=document.words.indices, values=document.words.values)
    return vectors


def to_payload(document: Stored) -> dict[str, Any]:
    """Return the payload of a document's point, which includes its id."""
    return {"id": document.id, **document.payload}


def to_stored(point: Any) -> Stored:
    """Return the document of a point; without vectors if they were not requested."""
    payload = dict(point.payload or {})
    vector, words = point.vector, None
    if isinstance(vector, dict):  # always in a folder
        words = vector.get(WORDS)
        vector = vector.get("nuggets", vector.get(""))
    vectors = np.zeros((0, 0), np.float32) if vector is None else np.asarray(vector, dtype=np.float32)
    name = payload.pop("id", None)
    if not isinstance(name, str):
        raise IndexFileError(f"a document of the index is damaged: its id is {name!r}; {CHECK}.")
    return Stored(name, vectors, payload, words and Words(list(words.indices), list(words.values)))


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
