"""Damage to an index: to its files, and to single documents."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from textnuggets.errors import IndexFileError, InputError
from textnuggets.io.progress import Progress
from textnuggets.model.nuggets import Nuggets
from textnuggets.search.backends.base import Backend, Stored
from textnuggets.search.labels import labels_of
from textnuggets.search.layout_bytes import unpack_layout
from textnuggets.search.manifest import CHECK, Manifest
from textnuggets.search.payload import digest_content, unpack_metadata

TOLERANCE = 0.1  # by which a vector's length, or a mean of cosines, may exceed 1


class Checked(NamedTuple):
    """Result of checking an index."""

    files: int
    """Files that were compared with their checksums; 0 if the index has been written to since it was compacted."""
    documents: int
    """Documents that were read; 0 if files are damaged."""
    damage: list[str]
    """A description of each damaged file or document."""


def check_index(backend: Backend, show_progress_bar: bool) -> Checked:
    """Compare all files with their checksums and, if none is damaged, read and check every document.

    Args:
        backend: Storage of an index that is not open.
        show_progress_bar: Whether to report progress on standard error.
    """
    files, damage = backend.check_files()
    if damage:
        return Checked(files, 0, damage)
    backend.open()
    try:
        count = 0
        with Progress("check", backend.engine.count(), show_progress_bar) as progress:
            for document in backend.engine.documents():
                try:
                    check_document(document, backend.manifest)
                except IndexFileError as error:
                    damage.append(str(error))
                count += 1
                progress.add(1)
    finally:
        backend.close()
    return Checked(files, count, damage)


def check_document(document: Stored, manifest: Manifest) -> Nuggets:
    """Return the nuggets of a stored document; raise IndexFileError if it is damaged.

    Checked are the layout, the length of each vector, and the hash of text and metadata if the text is stored.

    Args:
        document: Document with its vectors.
        manifest: Settings of its index.
    """
    payload = document.payload
    try:
        if document.vectors.ndim != 2 or not len(document.vectors):
            raise IndexFileError("it has no vectors.")
        lengths = np.linalg.norm(document.vectors, axis=1)
        if not (np.isclose(lengths, 1, atol=_tolerance(manifest)) | (lengths == 0)).all():
            raise IndexFileError("its vectors do not have length 1.")
        metadata, text = payload.get("metadata"), payload.get("text")
        labels = sorted(labels_of(unpack_metadata(payload)))
        if text is not None and not isinstance(text, str):
            raise IndexFileError(f"its text is {type(text).__name__}.")
        if isinstance(metadata, str):  # engines have rounded the metadata of indexes of early versions
            if payload.get("labels") != labels:
                raise IndexFileError("its labels do not match its metadata.")
            if text is not None and payload.get("hash") != digest_content(metadata, text):
                raise IndexFileError("its text and metadata do not match their hash.")
        return unpack_layout(payload, document.vectors)
    except (IndexFileError, InputError) as error:
        raise IndexFileError(f"document {document.id!r} is damaged: {error}") from error


def check_score(document: Stored, score: float, manifest: Manifest) -> None:
    """Raise IndexFileError if the mean of cosines of a document is not a number between -1 and 1."""
    if not abs(score) <= 1 + _tolerance(manifest):  # also if it is NaN
        raise IndexFileError(f"document {document.id!r} has the impossible score {score}: {CHECK}.")


def _tolerance(manifest: Manifest) -> float:
    """Return how much lengths may differ from 1; rounding to four bits changes them, and more so with few dimensions."""
    return TOLERANCE + (manifest.dimensions**-0.5 if manifest.dtype == "int4" else 0)
