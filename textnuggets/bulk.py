"""Many texts into one Parquet file, in flat memory, so that an interrupted run loses nothing.

Finished parts lie in `OUT.partial/`, each written atomically; the last step joins them into OUT.
Batches never span two parts, so a resumed run computes exactly what an unbroken one does.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from textnuggets.config import check_ratio
from textnuggets.errors import InputError
from textnuggets.model.encoding import Budget, encode_stream
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.storage import nugget_schema, read_metadata, to_table, write_parquet
from textnuggets.progress import Progress
from textnuggets.text.documents import Document

PART_TEXTS = 1024
DIGEST_KEY = b"textnuggets.digest"


def encode_to_parquet(
    model: NuggetModel,
    documents: Iterable[Document],
    out: Path,
    *,
    name: str,
    ratio: float | None = None,
    dtype: str = "float32",
    batch_size: int = 32,
    with_text: bool = False,
    resume: bool = False,
) -> int:
    """Encode documents into `out`; returns the number of rows.

    Args:
        model: The model.
        documents: Ids and texts, streamed.
        out: The Parquet file to write.
        name: What the file's metadata calls the model: its folder or hub id.
        ratio: Compression ratio; the model's own by default.
        dtype: Of the stored vectors.
        batch_size: Windows encoded together.
        with_text: Whether the texts are stored, too.
        resume: Whether to continue an interrupted run.
    """
    ratio = model.config.ratio if ratio is None else check_ratio(ratio)
    settings = {"model": name, "ratio": ratio, "selector": model.config.selector}
    schema = nugget_schema(model.view.hidden_size, dtype, settings, with_text)
    if not out.parent.is_dir():
        raise InputError(f"{out}: the folder {out.parent} does not exist.")
    folder = out.with_name(out.name + ".partial")
    if resume and not folder.exists() and out.exists():
        return _finished_rows(out, schema)
    parts = _open_folder(folder, schema, resume)
    stream = iter(documents)
    done = _skip_done(stream, parts)
    with Progress("encode") as progress:
        progress.add(done)
        while part := list(islice(stream, PART_TEXTS)):
            texts = [document.text for document in part]
            nuggets = list(encode_stream(model, texts, Budget(ratio), batch_size, np.dtype(dtype), progress))
            table = to_table([d.id for d in part], nuggets, schema, texts if with_text else None)
            tagged = schema.with_metadata({**schema.metadata, DIGEST_KEY: _digest(part)})
            path = folder / f"part-{len(parts):06d}.parquet"
            write_parquet(path, tagged, [table.cast(tagged)])
            parts.append(path)
    rows = write_parquet(out, schema, (pq.read_table(path).cast(schema) for path in parts))
    shutil.rmtree(folder)
    return rows


def _open_folder(folder: Path, schema: pa.Schema, resume: bool) -> list[Path]:
    """The finished parts of an interrupted run, if it was one of the same kind; else a new folder."""
    settings, note = _settings(schema), folder / "run.json"
    parts = sorted(folder.glob("part-*.parquet"))
    if parts:
        if not resume:
            raise InputError(
                f"{folder} holds an interrupted run ({len(parts)} parts of {PART_TEXTS} texts): "
                f"add --resume to continue it, or delete the folder to start anew."
            )
        before = json.loads(note.read_text(encoding="utf-8"))
        changed = [key for key in settings if before.get(key) != settings[key]]
        if changed:
            was = ", ".join(f"{key} {before.get(key)!r}" for key in changed)
            now = ", ".join(f"{key} {settings[key]!r}" for key in changed)
            raise InputError(f"{folder} was begun with {was}, not {now}: give the same, or delete it.")
        return parts
    folder.mkdir(exist_ok=True)
    note.write_text(json.dumps(settings), encoding="utf-8")
    return []


def _finished_rows(out: Path, schema: pa.Schema) -> int:
    """How many rows a complete file has, if it is the one that was asked for."""
    found, wanted = read_metadata(out), _settings(schema)
    changed = [key for key in wanted if key != "columns" and found.get(key) != wanted[key]]
    if changed:
        was = ", ".join(f"{key} {found.get(key)!r}" for key in changed)
        raise InputError(f"{out} is complete, but made with {was}: delete it, or leave out --resume.")
    return int(pq.read_metadata(out).num_rows)


def _settings(schema: pa.Schema) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(schema.metadata[b"textnuggets"])
    return {**about, "columns": schema.names}


def _skip_done(stream: Iterator[Document], parts: list[Path]) -> int:
    """Pass over the texts that are in finished parts, making sure they are still the same."""
    done = 0
    for path in parts:
        about = pq.read_metadata(path)
        passed = list(islice(stream, about.num_rows))
        if _digest(passed) != about.metadata.get(DIGEST_KEY):
            raise InputError(
                f"the texts changed since the interrupted run: texts {done + 1} to "
                f"{done + about.num_rows} are not those of {path}. Delete {path.parent} to start anew."
            )
        done += about.num_rows
    return done


def _digest(documents: Iterable[Document]) -> bytes:
    digest = blake2b(digest_size=16)
    for document in documents:
        for field in document:
            data = field.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest().encode()
