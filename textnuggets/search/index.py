"""NuggetIndex: documents as nuggets, found by mean-MaxSim, with the place that matched.

    index = NuggetIndex.create("my-index", model)
    index.add(["a", "b"], ["Some text.", "Another."], [{"year": 1999}, {}])
    index.search("text", k=10, filter={"year": 1999})

On disk an index is a folder: `index.json`, which says what it is, the engine's own files in the folder that
`index.json` names, and in `documents` how many documents it must have at least. On a server it is a collection: `http://host:6333/collection`.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
from filelock import FileLock

from textnuggets import __version__
from textnuggets.config import check_count, check_ratio
from textnuggets.errors import ConfigError, IndexFileError, InputError, TextnuggetsWarning
from textnuggets.io.documents import Document, is_unicode
from textnuggets.io.files import disk_usage
from textnuggets.io.hashing import short_digest
from textnuggets.io.progress import Progress
from textnuggets.model.coverage import one_warning
from textnuggets.model.fingerprint import fingerprint, lasting_name
from textnuggets.model.maxsim import NOT_COMPARABLE, unit
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.nuggets import Nuggets
from textnuggets.model.parquet import iter_rows, read_metadata
from textnuggets.search.backends.base import DTYPES, Engine, Stored, labels_of
from textnuggets.search.manifest import (
    COUNT,
    FORMAT,
    MANIFEST,
    Manifest,
    check_documents,
    check_model,
    clean,
    fitting_model,
    is_address,
    lock_folder,
    read_manifest,
    split_address,
    write_count,
    write_manifest,
)
from textnuggets.search.payload import pack_layout, pack_spaces, unpack_layout
from textnuggets.search.results import Added, Hit, Match, Row, batches, digest_of, stretch

BATCH = 128  # documents that are written, and then reported, together ...
CHARACTERS = 200_000  # ... or fewer, if they are long: some seconds of encoding


class NuggetIndex:
    """Documents as nuggets in an engine."""

    def __init__(
        self,
        place: str,
        manifest: Manifest,
        model: NuggetModel | None,
        engine: Engine,
        lock: FileLock | None,
    ) -> None:
        self.place, self.manifest = place, manifest
        self._model, self._engine, self._lock = model, engine, lock

    @property
    def model(self) -> NuggetModel:
        """What encodes documents and queries; loaded by its name when it is first needed."""
        if self._model is None:
            self._model = fitting_model(self.manifest, None, self.place)
        return self._model

    # ---------------------------------------------------------------- making, opening, closing

    @classmethod
    def create(
        cls,
        place: str | Path,
        model: NuggetModel,
        ratio: float | None = None,
        query_ratio: float | None = None,
        dtype: str = "float16",
        store_text: bool = True,
        model_name: str | None = None,
        api_key: str | None = None,
    ) -> Self:
        """A new, empty index.

        Args:
            place: A folder that is not there yet, or `http://host:port/collection`.
            model: What encodes documents and queries.
            ratio: Compression ratio of the documents; the model's own by default.
            query_ratio: Compression ratio of queries; the model's own by default.
            dtype: Of the stored vectors: float32, float16 or int8.
            store_text: Whether texts are kept beside the vectors.
            model_name: By which name `open` finds the model again; by default the folder it was loaded from.
            api_key: For a server.
        """
        if dtype not in DTYPES:
            raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}; got {dtype!r}.")
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
            dimensions=model.value.out_features,
            dtype=dtype,
            store_text=store_text,
            engine="engine-1",
        )
        if is_address(place):
            return cls._create_on_server(str(place), model, manifest, api_key)
        folder = Path(place)
        ours = (".lock", COUNT)  # what is left if making it was interrupted before the manifest
        if folder.exists() and not folder.is_dir():
            raise IndexFileError(f"{folder} is a file: name a folder.")
        if folder.is_dir() and any(
            file.name not in ours and not file.name.startswith("engine-") for file in folder.iterdir()
        ):
            raise IndexFileError(f"{folder} is there already: open it, or name another folder.")

        from textnuggets.search.backends.edge import EdgeEngine

        folder.mkdir(parents=True, exist_ok=True)
        lock = lock_folder(folder)
        try:
            for rest in folder.glob("engine-*"):
                shutil.rmtree(rest)
            engine = EdgeEngine.create(folder / manifest.engine, manifest.dimensions, dtype)
            write_count(folder, 0)
            write_manifest(folder, manifest)  # last: a folder without it is no index
        except BaseException:
            lock.release()
            raise
        return cls(str(folder), manifest, model, engine, lock)

    @classmethod
    def _create_on_server(
        cls, place: str, model: NuggetModel, manifest: Manifest, api_key: str | None
    ) -> Self:
        from textnuggets.search.backends.server import ServerEngine, connect

        url, collection = split_address(place)
        client = connect(url, api_key)
        if ServerEngine(client, collection).exists():
            raise IndexFileError(f"{place} is there already: open it, or name another collection.")
        about = asdict(manifest)
        engine = ServerEngine.create(client, collection, manifest.dimensions, manifest.dtype, about)
        return cls(place, manifest, model, engine, None)

    @classmethod
    def exists(cls, place: str | Path, api_key: str | None = None) -> bool:
        """Whether there is an index."""
        if not is_address(place):
            return (Path(place) / MANIFEST).is_file()
        from textnuggets.search.backends.server import ServerEngine, connect

        url, collection = split_address(str(place))
        return ServerEngine(connect(url, api_key), collection).exists()

    @classmethod
    def open(cls, place: str | Path, model: NuggetModel | None = None, api_key: str | None = None) -> Self:
        """An index that is there.

        Args:
            place: Its folder, or `http://host:port/collection`.
            model: The model it was built with; loaded by the name the index has for it by default.
            api_key: For a server.
        """
        engine: Engine
        if is_address(place):
            from textnuggets.search.backends.server import ServerEngine, connect

            url, collection = split_address(str(place))
            server = ServerEngine(connect(url, api_key), collection)
            if not server.exists():
                raise IndexFileError(f"{place}: the server has no such collection.")
            manifest = Manifest.read(server.about(), str(place))
            return cls(str(place), manifest, check_model(manifest, model, str(place)), server, None)

        from textnuggets.search.backends.edge import EdgeEngine

        folder = Path(place)
        manifest = read_manifest(folder)
        found = check_model(manifest, model, str(folder))
        lock = lock_folder(folder)
        try:
            manifest = read_manifest(folder)  # it may have been compacted until we had the lock
            clean(folder, manifest)
            if not (folder / manifest.engine).is_dir():
                raise IndexFileError(f"{folder}: its vectors are missing ({manifest.engine}).")
            engine = EdgeEngine.open(folder / manifest.engine)
            check_documents(folder, engine)
        except BaseException:
            lock.release()
            raise
        return cls(str(folder), manifest, found, engine, lock)

    def close(self) -> None:
        """Let go of the files, so that others can open the index."""
        try:
            self._engine.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._engine.count()

    # ---------------------------------------------------------------- documents in and out

    def add(
        self,
        ids: Iterable[str],
        texts: Iterable[str],
        metadata: Iterable[Mapping[str, Any] | None] | None = None,
        show_progress_bar: bool = False,
    ) -> Added:
        """Add documents, in place of those with the same ids; what is there unchanged is left alone.

        A batch at a time: what the progress counts is on the disk, so that after a crash the same call
        goes on where it was.

        Args:
            ids: Names of your own.
            texts: As many texts.
            metadata: As many JSON objects, which a search can be filtered by.
            show_progress_bar: Whether to report on standard error.
        """
        if metadata is None:
            documents = (Document(name, text) for name, text in zip(ids, texts, strict=True))
        else:
            rows = zip(ids, texts, metadata, strict=True)
            documents = (Document(name, text, dict(meta or {})) for name, text, meta in rows)
        return self.add_documents(documents, show_progress_bar)

    def add_documents(self, documents: Iterable[Document], show_progress_bar: bool = False) -> Added:
        """The same, with documents as files are read into."""

        def encode(new: list[Row]) -> list[Nuggets]:
            try:
                return self.model.encode([row.document.text for row in new], ratio=self.manifest.ratio)
            except InputError as error:
                names = f"{new[0].document.id!r} to {new[-1].document.id!r}"
                raise InputError(f"of the documents {names}: {error}") from error

        rows = (Row(document, digest_of(document), None) for document in documents)
        with one_warning(stacklevel=3):  # for all batches
            return self._add(rows, encode, show_progress_bar)

    def _add(
        self, rows: Iterable[Row], encode: Callable[[list[Row]], list[Nuggets]], show_progress_bar: bool
    ) -> Added:
        """Write what is new or changed, a batch at a time; each is on the disk before it is counted."""
        written = unchanged = repeated = 0
        with Progress("index", None, show_progress_bar) as progress:
            for batch in batches(rows, BATCH, lambda row: len(row.document.text), CHARACTERS):
                latest = {row.document.id: row for row in batch}  # of one id twice, the last
                known = {item.id: item.payload.get("hash") for item in self._engine.get(list(latest))}
                new = [row for name, row in latest.items() if known.get(name) != row.digest]
                if new:
                    made = zip(new, encode(new), strict=True)
                    self._engine.put([self._stored(row.document, found, row.digest) for row, found in made])
                    self._remember_count()
                written += len(new)
                unchanged += len(latest) - len(new)
                repeated += len(batch) - len(latest)
                progress.add(len(batch))
        return Added(written, unchanged, repeated)

    def _remember_count(self) -> None:
        """What the index must have when it is opened again: an engine does not notice all that is missing."""
        if self._lock is not None:
            write_count(Path(self.place), len(self))

    def add_encoded(self, path: str | Path, show_progress_bar: bool = False) -> Added:
        """Add what `textnuggets encode` wrote, without encoding it again; the rest is as in `add`.

        Args:
            path: A Parquet file of nuggets, made by the same weights at the same ratio.
            show_progress_bar: Whether to report on standard error.
        """
        about = read_metadata(path)
        if about.get("weights") != self.manifest.fingerprint:
            raise IndexFileError(
                f"{path} was made by {about.get('model')!r} (weights {about.get('weights')}), the index by "
                f"{self.manifest.model!r} ({self.manifest.fingerprint})."
            )
        if about.get("ratio") not in (None, self.manifest.ratio):  # none: each text has its own
            raise IndexFileError(
                f"{path} was made at the ratio {about['ratio']}, the index at {self.manifest.ratio}."
            )

        def rows() -> Iterator[Row]:
            for name, nuggets, text in iter_rows(path):
                if text is None and self.manifest.store_text:
                    raise InputError(
                        f"{path} holds no texts: encode --with-text, or index with --no-store-text."
                    )
                document = Document(name, text or "")
                yield Row(document, digest_of(document) if text is not None else _digest(nuggets), nuggets)

        return self._add(
            rows(), lambda new: [row.nuggets for row in new if row.nuggets is not None], show_progress_bar
        )

    def _stored(self, document: Document, nuggets: Nuggets, digest: str) -> Stored:
        norms = np.linalg.norm(nuggets.vectors.astype(np.float32), axis=1)
        vectors = nuggets.vectors / np.maximum(norms, 1e-12)[:, None]
        payload: dict[str, Any] = {
            "hash": digest,
            "layout": pack_layout(nuggets, norms),
            "metadata": document.metadata or {},
            "labels": labels_of(document.metadata or {}),
        }
        if self.manifest.store_text:
            payload["text"] = document.text
        elif nuggets.layout.runs:  # for the text that is regenerated
            payload["spaces"] = pack_spaces(nuggets.layout)
        return Stored(document.id, vectors.astype(np.float32), payload)

    def delete(self, ids: Iterable[str]) -> list[str]:
        """Forget documents; returns those of the ids that were not there.

        Their bytes leave the disk when the index is compacted.
        """
        wanted = list(dict.fromkeys(ids))
        there = {item.id for item in self._engine.get(wanted)}
        if there:
            if self._lock is not None:
                write_count(Path(self.place), len(self) - len(there))  # before: afterwards it may be too late
            self._engine.delete([name for name in wanted if name in there])
        return [name for name in wanted if name not in there]

    def compact(self, show_progress_bar: bool = False) -> None:
        """Write the index anew: nothing that was deleted or replaced is left on the disk."""
        from textnuggets.search.backends.edge import EdgeEngine

        if not isinstance(self._engine, EdgeEngine):
            raise ConfigError("a server compacts its collections itself.")
        folder = Path(self.place)
        number = int(self.manifest.engine.rpartition("-")[2]) + 1
        manifest = Manifest(**{**asdict(self.manifest), "engine": f"engine-{number}"})
        clean(folder, self.manifest)
        fresh = EdgeEngine.create(folder / manifest.engine, manifest.dimensions, manifest.dtype)
        try:
            with Progress("compact", len(self), show_progress_bar) as progress:
                for batch in batches(self._engine.documents(), BATCH):
                    fresh.put(batch)
                    progress.add(len(batch))
            fresh.optimize()
            fresh.drop_log()
            if fresh.count() != len(self):
                raise IndexFileError(
                    f"{folder}: {len(self):,} documents became {fresh.count():,}; it stays as it was."
                )
        except BaseException:
            fresh.close()
            shutil.rmtree(folder / manifest.engine, ignore_errors=True)
            raise
        write_manifest(folder, manifest)  # from here on the new files are the index
        self._engine.close()
        self._engine, self.manifest = fresh, manifest
        clean(folder, manifest)

    # ---------------------------------------------------------------- search

    def search(self, query: str, k: int = 10, filter: Mapping[str, Any] | None = None) -> list[Hit]:
        """The k documents that answer the query best.

        Args:
            query: Any text.
            k: How many.
            filter: Metadata they must have.
        """
        check_count("k", k, at_least=1)
        if not isinstance(query, str) or not query.strip():
            raise InputError("the query is empty: there is nothing to search for.")
        asked = self.model.encode(query, ratio=self.manifest.query_ratio)
        vectors = unit(asked, "query")
        labels = labels_of(filter or {})
        for key, value in (filter or {}).items():
            if not labels_of({key: value}):
                raise InputError(f"the filter {key!r} has nothing to compare with: {value!r}.")
        if not all(map(is_unicode, labels)):
            raise InputError("the filter holds half a surrogate pair, so it is no text.")
        found = self._engine.find(vectors, k, labels)
        stored = [
            unpack_layout(payload["layout"], item.document.vectors, payload.get("spaces"))
            for item in found
            for payload in [item.document.payload]
        ]
        texts = [item.document.payload.get("text") for item in found]
        regenerated = self._regenerate(stored, texts)
        hits = []
        for item, nuggets, text, again in zip(found, stored, texts, regenerated, strict=True):
            cosines = vectors @ item.document.vectors.T
            best = cosines.argmax(1)
            matches = [
                Match(stretch(asked, i), stretch(nuggets, j), float(cosines[i, j]))
                for i, j in enumerate(best.tolist())
            ]
            metadata = item.document.payload.get("metadata") or {}
            shown, is_again = (text, False) if text is not None else (again, again is not None)
            hits.append(Hit(item.document.id, item.score / len(vectors), matches, metadata, shown, is_again))
        return hits

    def _regenerate(self, nuggets: Sequence[Nuggets], texts: Sequence[str | None]) -> list[str | None]:
        """What the vectors decode into, for those without a text, if the model has a decoder."""
        missing = [item for item, text in zip(nuggets, texts, strict=True) if text is None]
        if not missing or not self.model.can_decode:
            return [None] * len(texts)
        decoded = iter(self.model.reconstruct(missing, num_beams=1))
        return [next(decoded) if text is None else None for text in texts]

    def info(self) -> dict[str, Any]:
        """What the index is, how many documents it holds and the room they take."""
        found = {**asdict(self.manifest), "documents": len(self)}
        if self._lock is not None:
            found["bytes"] = disk_usage(Path(self.place))
            found["reclaimable_bytes"] = self.reclaimable_bytes
        return found

    @property
    def reclaimable_bytes(self) -> int:
        """Disk that `compact` would free at least; 0 on a server, which compacts by itself."""
        return getattr(self._engine, "log_bytes", 0)


def _digest(nuggets: Nuggets) -> str:
    """Return what changes with a text that is not stored: its vectors and its white space."""
    spaces = repr(nuggets.layout.runs) if nuggets.layout.runs else ""
    vectors = np.ascontiguousarray(nuggets.vectors).tobytes()
    return short_digest([vectors, spaces.encode()], 12)
