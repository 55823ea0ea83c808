"""Adding documents to an index and deleting them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from textnuggets.errors import IndexFileError, InputError
from textnuggets.io.batching import batches
from textnuggets.io.documents import BadLine, Document, is_unicode
from textnuggets.io.hashing import short_digest
from textnuggets.io.progress import Progress
from textnuggets.model.fingerprint import is_sampled, same_weights
from textnuggets.model.maxsim import unit
from textnuggets.model.nuggets import Nuggets
from textnuggets.model.parquet import iter_rows, read_metadata
from textnuggets.search.backends.base import Backend, Stored
from textnuggets.search.labels import labels_of
from textnuggets.search.layout_bytes import PLACES, pack_layout
from textnuggets.search.manifest import Manifest
from textnuggets.search.payload import digest_content, pack_metadata, pack_spaces
from textnuggets.search.results import Added
from textnuggets.search.words import words_of_document

BATCH = 128  # documents that are written together and then reported ...
CHARACTERS = 200_000  # ... or fewer if they are long: this takes some seconds to encode


class Row(NamedTuple):
    """Document to add, with its nuggets if it is already encoded."""

    document: Document
    digest: str
    """Hash of everything that is stored; a document with the same digest is not written again."""
    nuggets: Nuggets | None


def to_rows(documents: Iterable[Document], on_bad: BadLine) -> Iterator[Row]:
    """Yield rows to encode.

    Args:
        documents: Documents to add.
        on_bad: Called with an InputError for each document that cannot be stored.
    """
    for document in documents:
        with _handling(document, on_bad):
            yield Row(document, _digest_document(document), None)


@contextmanager
def _handling(document: Document, on_bad: BadLine) -> Iterator[None]:
    """Pass an InputError to `on_bad`, with the file and line of the document."""
    try:
        yield
    except InputError as error:
        on_bad(error if document.place is None else InputError(f"{document.place}: {error}"))


def encoded_rows(path: str | Path, manifest: Manifest, on_bad: BadLine) -> Iterator[Row]:
    """Return the rows of a Parquet file of nuggets; raise IndexFileError if they do not fit the index."""
    about = read_metadata(path)
    if not same_weights(about.get("weights") or "", manifest.fingerprint):
        if is_sampled(about.get("weights") or "") != is_sampled(manifest.fingerprint):
            raise IndexFileError(
                f"{path} and the index cannot be compared, because an early version, whose fingerprints did not cover all "
                f"weights, made one of them: encode or index the texts again."
            )
        raise IndexFileError(
            f"{path} was made by {about.get('model')!r} (weights {about.get('weights')}), the index by "
            f"{manifest.model!r} ({manifest.fingerprint})."
        )
    if about.get("ratio") not in (None, manifest.ratio):  # None: every text has a ratio of its own
        raise IndexFileError(f"{path} was made at the ratio {about['ratio']}, the index at {manifest.ratio}.")
    return _read_rows(path, manifest, on_bad)


def _read_rows(path: str | Path, manifest: Manifest, on_bad: BadLine) -> Iterator[Row]:
    for number, (name, nuggets, text) in enumerate(iter_rows(path), 1):
        if text is None and (manifest.store_text or manifest.words):
            without = " and without --words" if manifest.words else ""
            raise InputError(
                f"{path} holds no texts: encode --with-text, or index with --no-store-text{without}."
            )
        document = Document(name, text or "", place=f"{path}, row {number}")
        with _handling(document, on_bad):
            digest = _digest_document(document)
            yield Row(document, _digest_nuggets(nuggets) if text is None else digest, nuggets)


def write_rows(
    backend: Backend,
    rows: Iterable[Row],
    encode: Callable[[list[Row]], list[Nuggets]],
    show_progress_bar: bool,
    on_bad: BadLine,
) -> Added:
    """Write new and changed documents in batches; each batch is on disk before it is counted.

    Args:
        backend: Storage of the index.
        rows: Documents to add.
        encode: Returns the nuggets of each row of a batch.
        show_progress_bar: Whether to report progress on standard error.
        on_bad: Called with an InputError for each document that the engine cannot store.
    """
    written = unchanged = repeated = 0
    with Progress("index", None, show_progress_bar) as progress:
        for batch in batches(rows, BATCH, CHARACTERS, lambda row: len(row.document.text)):
            latest = {row.document.id: row for row in batch}  # the last row of each id
            known = {item.id: item for item in backend.engine.get(list(latest))}
            digests = {name: item.payload.get("hash") for name, item in known.items()}
            new = [row for name, row in latest.items() if digests.get(name) != row.digest]
            stored: list[Stored] = []
            for row, nuggets in zip(new, encode(new) if new else (), strict=True):
                with _handling(row.document, on_bad):
                    document = _to_stored(row, nuggets, backend.manifest)
                    backend.engine.check(document)
                    stored.append(document)
            if stored:
                replaced = [known[document.id] for document in stored if document.id in known]
                with backend.changing(replaced, stored):
                    backend.engine.put(stored)
            written += len(stored)
            unchanged += len(latest) - len(new)
            repeated += len(batch) - len(latest)
            progress.add(len(batch))
    return Added(written, unchanged, repeated)


def delete_documents(backend: Backend, ids: Iterable[str]) -> list[str]:
    """Delete documents and return the ids that were not in the index."""
    requested = list(dict.fromkeys(ids))
    present = {item.id: item for item in backend.engine.get(requested)}
    if present:
        with backend.changing(list(present.values())):
            backend.engine.delete([name for name in requested if name in present])
    return [name for name in requested if name not in present]


def _to_stored(row: Row, nuggets: Nuggets, manifest: Manifest) -> Stored:
    document = row.document
    vectors = unit(nuggets, f"document {document.id!r}")
    norms = np.linalg.norm(nuggets.vectors.astype(np.float64), axis=1).astype(np.float32)
    if not (np.isfinite(norms).all() and np.isfinite(nuggets.scores).all()):
        raise InputError(f"document {document.id!r} holds values that are not finite numbers.")
    payload: dict[str, Any] = {
        "hash": row.digest,
        PLACES: pack_layout(nuggets, norms, manifest.decodable),
        "metadata": pack_metadata(document.metadata or {}),
        "labels": sorted(labels_of(document.metadata or {})),
    }
    if manifest.store_text:
        payload["text"] = document.text
    else:
        if document.text:
            payload["text_bytes"] = len(document.text.encode("utf-8"))
        if nuggets.layout.runs:  # to regenerate the text with its white space
            payload["spaces"] = pack_spaces(nuggets.layout)
    words = words_of_document(document.text) if manifest.words else None
    return Stored(document.id, vectors, payload, words)


def _digest_document(document: Document) -> str:
    """Return a hash of a document's text and metadata; raise InputError if they cannot be stored."""
    name, text = document.id, document.text
    if not isinstance(name, str) or not name:
        start = repr(text[:40]) if isinstance(text, str) else "?"
        raise InputError(f"ids must be non-empty strings, got {name!r} for {start}.")
    if not isinstance(text, str):
        raise InputError(f"texts must be strings; the text of {name!r} is {type(text).__name__}.")
    if not (is_unicode(name) and is_unicode(text)):
        raise InputError(
            f"document {name!r} contains an unpaired surrogate, so it cannot be stored as UTF-8."
        )
    try:
        metadata = pack_metadata(document.metadata or {})
    except InputError as error:
        raise InputError(f"the metadata of {name!r} cannot be stored as JSON: {error}") from error
    return digest_content(metadata, text)


def _digest_nuggets(nuggets: Nuggets) -> str:
    """Return a hash of the vectors and white space of a document whose text is not stored."""
    spaces = repr(nuggets.layout.runs) if nuggets.layout.runs else ""
    vectors = np.ascontiguousarray(nuggets.vectors).tobytes()
    return short_digest([vectors, spaces.encode()], 12)
