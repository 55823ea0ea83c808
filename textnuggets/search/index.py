"""NuggetIndex: documents as nuggets, searched by mean-MaxSim.

    index = NuggetIndex.create("my-index", model)
    index.add(["a", "b"], ["Some text.", "Another."], [{"year": 1999}, {}])
    index.search("text", k=10, filter={"year": 1999})

An index is a folder on disk or, at `http://host:6333/collection`, a collection on a Qdrant server.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from textnuggets import __version__
from textnuggets.checks import check_count, check_ratio
from textnuggets.errors import ConfigError, InputError, TextnuggetsWarning
from textnuggets.io.documents import BadLine, Document, raise_bad_line
from textnuggets.model.coverage import one_warning
from textnuggets.model.fingerprint import fingerprint, lasting_name
from textnuggets.model.interface import TextInterface
from textnuggets.model.maxsim import NOT_COMPARABLE
from textnuggets.model.nuggets import Nuggets
from textnuggets.search.backends import backend_at
from textnuggets.search.backends.base import Backend
from textnuggets.search.checking import Checked, check_index
from textnuggets.search.manifest import (
    BITS,
    FORMAT,
    Manifest,
    check_model,
    default_dtype,
    load_model_of,
)
from textnuggets.search.querying import check_min_score, check_query, find_hits
from textnuggets.search.results import Added, Hit
from textnuggets.search.words import words_of_query
from textnuggets.search.writing import Row, delete_documents, encoded_rows, to_rows, write_rows


class NuggetIndex:
    """Searchable index of documents; use `create` or `open` to get one."""

    def __init__(self, backend: Backend, model: TextInterface | None) -> None:
        self._backend, self._model = backend, model

    @property
    def place(self) -> str:
        """Folder or address of the index."""
        return self._backend.place

    @property
    def manifest(self) -> Manifest:
        """Settings of the index."""
        return self._backend.manifest

    @property
    def model(self) -> TextInterface:
        """Model that encodes documents and queries; loaded by its name when first used."""
        if self._model is None:
            self._model = load_model_of(self.manifest, self.place)
        return self._model

    # ---------------------------------------------------------------- create, open, close

    @classmethod
    def create(
        cls,
        place: str | Path,
        model: TextInterface,
        ratio: float | None = None,
        query_ratio: float | None = None,
        dtype: str | None = None,
        store_text: bool = True,
        model_name: str | None = None,
        api_key: str | None = None,
        words: bool = False,
        first_stage: bool | None = None,
        shards: int | None = None,
        replicas: int | None = None,
    ) -> Self:
        """Create an empty index.

        Args:
            place: Folder that does not exist yet, or `http://host:port/collection`.
            model: Model that encodes documents and queries.
            ratio: Compression ratio of documents; the model's by default.
            query_ratio: Compression ratio of queries; the model's by default.
            dtype: Data type of the stored vectors: float32, float16, int8 or int4; by default int4, or float16 if the model
                has a decoder.
            store_text: Whether to store texts with the vectors.
            model_name: Name by which `open` loads the model; by default the folder it was loaded from.
            api_key: API key of a server.
            words: Whether to store the words of documents for hybrid searches; a word takes some 6 bytes.
            first_stage: Whether searches have a first stage, which is faster in large indexes but may miss a document.
                By default, an index in a folder has one if it has at least 100,000 documents when it is compacted.
            shards: Parts into which a cluster of servers splits the index; the cluster's default if None.
            replicas: Copies of each part; the cluster's default if None.
        """
        dtype = default_dtype(model.can_decode) if dtype is None else dtype
        if dtype not in BITS:
            raise ConfigError(f"dtype must be one of {', '.join(BITS)}; got {dtype!r}.")
        if not model.config.comparable:
            warnings.warn(NOT_COMPARABLE, TextnuggetsWarning, stacklevel=2)
        ratio = check_ratio(model.config.ratio if ratio is None else ratio)
        manifest = Manifest(
            format=FORMAT,
            version=__version__,
            model=model_name or lasting_name(model.config.name_or_path or "unnamed"),
            fingerprint=fingerprint(model),
            ratio=ratio,
            query_ratio=check_ratio(
                model.config.ratio_of_queries(ratio) if query_ratio is None else query_ratio
            ),
            dimensions=model.dim,
            dtype=dtype,
            store_text=store_text,
            engine="engine-1",
            words=words,
            first_stage=first_stage,
            pooled=first_stage is True,
            decodable=model.can_decode,
        )
        for name, count in (("shards", shards), ("replicas", replicas)):
            if count is not None:
                check_count(name, count, at_least=1)
        backend = backend_at(place, api_key)
        backend.create(manifest, shards, replicas)
        return cls(backend, model)

    @classmethod
    def exists(cls, place: str | Path, api_key: str | None = None) -> bool:
        """Return whether there is an index at a folder or address."""
        return backend_at(place, api_key).exists()

    @classmethod
    def open(
        cls,
        place: str | Path,
        model: TextInterface | None = None,
        api_key: str | None = None,
        read_only: bool = False,
    ) -> Self:
        """Open an existing index.

        Args:
            place: Folder of the index, or `http://host:port/collection`.
            model: Model the index was built with; by default loaded by the name stored in the index.
            api_key: API key of a server.
            read_only: Whether to open an index on disk also while another process has it open. The reader then works on a
                copy, and does not see later changes.
        """
        backend = backend_at(place, api_key)
        if model is not None:
            check_model(backend.read_manifest(), model, backend.place)
        backend.open(read_only)
        return cls(backend, model)

    @classmethod
    def check(cls, place: str | Path, api_key: str | None = None, show_progress_bar: bool = False) -> Checked:
        """Look for damage to an index that is not open, and return what was checked and found.

        All files are compared with the checksums that were taken when the index was compacted, unless it has been
        written to since. Then every document is read and checked.

        Args:
            place: Folder of the index, or `http://host:port/collection`.
            api_key: API key of a server.
            show_progress_bar: Whether to report progress on standard error.
        """
        return check_index(backend_at(place, api_key), show_progress_bar)

    def close(self) -> None:
        """Close the files and release the lock, so that another process can open the index."""
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._backend.engine.count()

    # ---------------------------------------------------------------- write

    def add(
        self,
        ids: Iterable[str],
        texts: Iterable[str],
        metadata: Iterable[Mapping[str, Any] | None] | None = None,
        show_progress_bar: bool = False,
    ) -> Added:
        """Add documents, replacing those with the same ids; unchanged documents are skipped.

        Documents are written in batches, and the progress counts only what is on disk. After a crash, the same call
        resumes where it stopped.

        Args:
            ids: Unique name of each document.
            texts: Text of each document.
            metadata: JSON object of each document, which searches can filter by.
            show_progress_bar: Whether to report progress on standard error.
        """
        if metadata is None:
            documents = (Document(name, text) for name, text in zip(ids, texts, strict=True))
        else:
            rows = zip(ids, texts, metadata, strict=True)
            documents = (Document(name, text, dict(meta or {})) for name, text, meta in rows)
        return self.add_documents(documents, show_progress_bar)

    def add_documents(
        self,
        documents: Iterable[Document],
        show_progress_bar: bool = False,
        on_bad: BadLine = raise_bad_line,
    ) -> Added:
        """Add documents as read from files; see `add`.

        Args:
            documents: Documents with their metadata.
            show_progress_bar: Whether to report progress on standard error.
            on_bad: Called with an InputError for each document that cannot be stored; raises it by default.
        """

        def encode(rows: list[Row]) -> list[Nuggets]:
            try:
                return self.model.encode([row.document.text for row in rows], ratio=self.manifest.ratio)
            except InputError as error:
                names = f"{rows[0].document.id!r} to {rows[-1].document.id!r}"
                raise InputError(f"in documents {names}: {error}") from error

        with one_warning(stacklevel=3):  # one for all batches
            rows = to_rows(documents, on_bad)
            return write_rows(self._backend, rows, encode, show_progress_bar, on_bad)

    def add_encoded(
        self, path: str | Path, show_progress_bar: bool = False, on_bad: BadLine = raise_bad_line
    ) -> Added:
        """Add documents that `textnuggets encode` has encoded; otherwise as `add`.

        Args:
            path: Parquet file of nuggets, made with the same weights at the same ratio.
            show_progress_bar: Whether to report progress on standard error.
            on_bad: Called with an InputError for each document that cannot be stored; raises it by default.
        """

        def encode(rows: list[Row]) -> list[Nuggets]:
            return [row.nuggets for row in rows if row.nuggets is not None]

        rows = encoded_rows(path, self.manifest, on_bad)
        return write_rows(self._backend, rows, encode, show_progress_bar, on_bad)

    def delete(self, ids: Iterable[str]) -> list[str]:
        """Delete documents and return the ids that were not in the index.

        Their bytes stay on disk until the index is compacted.
        """
        return delete_documents(self._backend, ids)

    def compact(self, show_progress_bar: bool = False) -> None:
        """Rewrite the index without deleted and replaced documents.

        Raises:
            ConfigError: On a server, which compacts its collections itself.
        """
        self._backend.compact(show_progress_bar)

    # ---------------------------------------------------------------- read

    def search(
        self,
        query: str,
        k: int = 10,
        filter: Mapping[str, Any] | None = None,
        min_score: float | None = None,
        full: bool = True,
        hybrid: bool = False,
        exact: bool = False,
    ) -> list[Hit]:
        """Return the k documents that match the query best, best first.

        Args:
            query: Any text.
            k: Number of documents at most.
            filter: Metadata that documents must have.
            min_score: Score that documents must have at least, from -1 to 1; any by default.
            full: Whether hits have the whole text of their document, besides the passages that match best. Text that is
                not stored is decoded from the vectors, if the model has a decoder.
            hybrid: Whether to rank documents by their words, too, if the index has words. Scores are those of the vectors,
                so they need not decrease from hit to hit.
            exact: Whether to score every document, also if the index has a first stage.
        """
        check_count("k", k, at_least=1)
        check_min_score(min_score)
        check_query(query)
        if hybrid and not self.manifest.words:
            raise ConfigError(f"{self.place} has no words for a hybrid search: build it again with words.")
        words = words_of_query(query) if hybrid else None
        if words is not None and not words.indices:  # nothing but stop words
            words = None
        nuggets = self.model.encode(query, ratio=self.manifest.query_ratio)
        return find_hits(self._backend, self.model, nuggets, k, filter or {}, min_score, full, words, exact)

    def info(self) -> dict[str, Any]:
        """Return the settings, the number of documents and, for a folder, its size on disk and that of its documents.

        `vector_bytes` are those of all vectors as they are stored, `bytes` those of the folder. The sizes of documents are None
        if an early version wrote to the index, or a process was killed while it did, until it is compacted.
        `checksums` is true if nothing has been written since the index was compacted, so that `check` compares all files.
        """
        settings = asdict(self.manifest)
        settings["checksums"] = settings["checksums"] is not None
        for internal in ("complete", "obsolete"):
            del settings[internal]
        return {**settings, "documents": len(self), **self._backend.disk_usage()}

    @property
    def reclaimable_bytes(self) -> int:
        """Bytes that `compact` would free at least; 0 on a server, which compacts by itself."""
        return self._backend.reclaimable_bytes
