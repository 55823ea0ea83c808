"""What an index is and where: its manifest, its folder or server, its lock, and the model it goes with."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from filelock import FileLock, Timeout

from textnuggets.errors import ConfigError, IndexFileError
from textnuggets.io.files import replacing
from textnuggets.model.fingerprint import fingerprint, lasting_name
from textnuggets.model.load import load_nugget_model
from textnuggets.model.modeling import NuggetModel
from textnuggets.search.backends.base import Engine

FORMAT = 1
MANIFEST, COUNT = "index.json", "documents"


@dataclass
class Manifest:
    """What an index is: `index.json`, or the metadata of a collection."""

    format: int
    version: str
    model: str
    """Folder or name of the model."""
    fingerprint: str
    """Of its weights."""
    ratio: float
    query_ratio: float
    dimensions: int
    dtype: str
    """Of the stored vectors: float32, float16 or int8."""
    store_text: bool
    engine: str
    """The folder of the engine's files."""

    @classmethod
    def read(cls, found: Any, place: str) -> Manifest:
        """From JSON, checked."""
        try:
            if found["format"] != FORMAT:
                raise IndexFileError(
                    f"{place} is an index of format {found['format']}; this version reads format {FORMAT}."
                )
            return cls(**found)
        except (KeyError, TypeError) as error:
            raise IndexFileError(f"{place} is no index of nuggets ({error}).") from error


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an index on disk."""
    path = folder / MANIFEST
    if not path.is_file():
        raise IndexFileError(f"{folder} is no index: it has no {MANIFEST}.")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise IndexFileError(f"{path} is damaged ({error}).") from error
    return Manifest.read(found, str(folder))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it, whole or not at all."""
    with replacing(folder / MANIFEST) as temporary:
        temporary.write_text(json.dumps(asdict(manifest), indent=1) + "\n", encoding="utf-8")


def write_count(folder: Path, count: int) -> None:
    """Remember how many documents the index must have at least."""
    with replacing(folder / COUNT) as temporary:
        temporary.write_text(str(count), encoding="ascii")


def check_documents(folder: Path, engine: Engine) -> None:
    """Whether all documents are there: of some damage an engine says nothing."""
    try:
        least = int((folder / COUNT).read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise IndexFileError(f"{folder / COUNT} is missing or damaged ({error}).") from error
    if (found := engine.count()) < least:
        raise IndexFileError(f"{folder} is damaged: it holds {found:,} documents, and had {least:,}.")


def clean(folder: Path, manifest: Manifest) -> None:
    """Remove what an interrupted compaction left behind."""
    for old in folder.glob("engine-*"):
        if old.name != manifest.engine:
            shutil.rmtree(old)


def lock_folder(folder: Path) -> FileLock:
    """Hold the index for this process alone; the system lets go of it when the process ends."""
    lock = FileLock(folder / ".lock", thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise IndexFileError(
            f"{folder} is open in another process: wait for it, or use a Qdrant server for several at once."
        ) from error
    except OSError as error:
        raise IndexFileError(f"{folder} cannot be locked ({error}).") from error
    return lock


def check_model(manifest: Manifest, model: NuggetModel | None, place: str) -> NuggetModel | None:
    """A model that was given, if it is the right one; one that was not is loaded when it is needed."""
    return None if model is None else fitting_model(manifest, model, place)


def fitting_model(manifest: Manifest, model: NuggetModel | None, place: str) -> NuggetModel:
    """The model of an index; another one's vectors would mean nothing in it."""
    name = manifest.model
    if model is None:
        model = load_nugget_model(name)
    else:
        name = lasting_name(model.config.name_or_path or "the model given")
    if (found := fingerprint(model)) != manifest.fingerprint:
        raise IndexFileError(
            f"{place} was built with {manifest.model!r} (weights {manifest.fingerprint}); {name!r} has other "
            f"weights ({found})."
        )
    return model


def is_address(place: str | Path) -> bool:
    """Whether a place is a server, and not a folder."""
    return str(place).startswith(("http://", "https://"))


def split_address(place: str) -> tuple[str, str]:
    """Server and collection of `http://host:port/collection`."""
    parts = urlparse(place)
    collection = parts.path.strip("/")
    if not parts.netloc or not collection or "/" in collection:
        raise ConfigError(f"{place}: write a server as http://host:6333/collection.")
    return f"{parts.scheme}://{parts.netloc}", collection
