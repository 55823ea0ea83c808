"""Encoding of many texts into one Parquet file, in constant memory and resumable.

Finished parts are written atomically to `OUT.partial/`; the last step joins them into OUT. OUT is locked meanwhile.
Batches never span two parts, so a resumed run computes exactly the same as an uninterrupted one.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from textnuggets.analysis.fidelity import check_fidelity, encode_to_fidelity, find_shortfall
from textnuggets.checks import check_ratio
from textnuggets.errors import ConfigError, InputError, TextnuggetsWarning
from textnuggets.io.disk import follow_link, make_folder
from textnuggets.io.documents import Document
from textnuggets.io.files import check_output, read_json_object, replacing
from textnuggets.io.folders import remove_folder, remove_stale
from textnuggets.io.hashing import short_digest
from textnuggets.io.locks import writing
from textnuggets.io.parquet import open_parquet, read_batches, read_table, write_parquet
from textnuggets.io.progress import Progress
from textnuggets.model.budget import Budget
from textnuggets.model.coverage import Coverage, collecting
from textnuggets.model.encoding import encode_stream
from textnuggets.model.fingerprint import fingerprint
from textnuggets.model.interface import TextInterface
from textnuggets.model.nuggets import Nuggets
from textnuggets.model.parquet import METADATA_KEY, nugget_schema, read_metadata, to_table

PART_TEXTS = 1024
DIGEST_KEY = b"textnuggets.digest"


def encode_to_parquet(
    model: TextInterface,
    documents: Iterable[Document],
    out: Path,
    *,
    name: str,
    ratio: float | None = None,
    dtype: str = "float32",
    batch_size: int = 32,
    with_text: bool = False,
    fidelity: float | None = None,
    resume: bool = False,
    coverage: Coverage | None = None,
) -> int:
    """Encode documents into the Parquet file `out` and return the number of rows.

    Warn once if the model does not know the language or characters of the texts, and once if texts do not reach the
    fidelity.

    Args:
        model: Nugget model.
        documents: Documents, read as a stream.
        out: Parquet file to write.
        name: Model name stored in the file's metadata: a folder or hub id.
        ratio: Compression ratio; the model's own by default.
        dtype: Data type of the stored vectors.
        batch_size: Number of windows encoded together.
        with_text: Whether to store the texts.
        fidelity: BLEU from 0 to 1; the ratio of each text is raised until its reconstruction reaches it.
        resume: Whether to resume an interrupted run.
        coverage: Collects what the model does not know, for a caller that warns once for several files; by default
            this function warns.
    """
    if fidelity is not None:
        if ratio is not None:
            raise ConfigError("give a ratio or a fidelity, not both.")
        check_fidelity(model, fidelity)
    ratio = model.config.ratio if ratio is None else check_ratio(ratio)
    about = {
        "model": name,
        "weights": fingerprint(model),
        "ratio": ratio if fidelity is None else None,
        **({} if fidelity is None else {"fidelity": fidelity}),
        "selector": model.config.selector,
        "window": model.window,
    }
    counted = Coverage() if coverage is None else coverage
    schema = nugget_schema(model.dim, dtype, about, with_text, fidelity is not None)
    # The last digits of a vector also depend on these settings, which the file does not store.
    computed = {"batch_size": batch_size, **model.arithmetic}

    def encode(
        texts: list[str], progress: Progress
    ) -> tuple[list[Nuggets], list[tuple[float, float]] | None]:
        """Return the nuggets of texts and, with a fidelity, the ratio and fidelity of each."""
        if fidelity is None:
            stream = encode_stream(
                model, texts, Budget(ratio), batch_size, np.dtype(dtype), progress, counted
            )
            return list(stream), None
        with collecting(counted):
            faithful = encode_to_fidelity(model, texts, fidelity, batch_size, dtype, progress)
        return [item.nuggets for item in faithful], [(item.ratio, item.fidelity) for item in faithful]

    check_output(out, stream=False)
    out = follow_link(out)
    with writing(out):
        rows = _write(iter(documents), out, schema, computed, resume, encode)
    if coverage is None:
        _warn(counted, out, fidelity)
    return rows


def _write(
    stream: Iterator[Document],
    out: Path,
    schema: pa.Schema,
    computed: dict[str, Any],
    resume: bool,
    encode: Callable[[list[str], Progress], tuple[list[Nuggets], list[tuple[float, float]] | None]],
) -> int:
    """Write the parts that are missing, join all parts into `out`, and return the number of rows."""
    folder = out.with_name(out.name + ".partial")
    for path in (out, folder):
        remove_stale(path.parent, path.name)
    if resume and not folder.exists() and out.exists():
        return _finished_rows(out, schema, stream)
    parts = _open_folder(folder, {**_settings(schema), **computed}, resume)
    digests = _skip_done(stream, parts)
    with Progress("encode") as progress:
        progress.add(sum(pq.read_metadata(path).num_rows for path in parts))
        while part := list(islice(stream, PART_TEXTS)):
            texts = [document.text for document in part]
            nuggets, found = encode(texts, progress)
            with_text = "text" in schema.names
            table = to_table([d.id for d in part], nuggets, schema, texts if with_text else None, found)
            digests.append(_digest(part))
            path = folder / _part_name(len(parts))
            write_parquet(path, _tag(schema, digests[-1:]), [table])
            parts.append(path)
    rows = write_parquet(out, _tag(schema, digests), map(_read_part, parts, digests))
    remove_folder(folder)
    return rows


def _read_part(path: Path, digest: bytes) -> pa.Table:
    """Return a part; raise InputError if it was not made from the texts with this digest."""
    table = read_table(path)
    if table.schema.metadata.get(DIGEST_KEY) != digest:
        raise InputError(
            f"{path} holds other texts than this run wrote: delete {path.parent} and encode again."
        )
    return table


def _warn(coverage: Coverage, out: Path, fidelity: float | None) -> None:
    """Warn about unknown languages or characters and missed fidelity."""
    coverage.warn(stacklevel=3)
    if fidelity is not None and (shortfall := find_shortfall([out], fidelity)) is not None:
        warnings.warn(shortfall.message(), TextnuggetsWarning, stacklevel=3)


def _part_name(number: int) -> str:
    return f"part-{number:06d}.parquet"


def _open_folder(folder: Path, settings: dict[str, Any], resume: bool) -> list[Path]:
    """Return the finished parts of an interrupted run; create the folder if there are none.

    Raise InputError if the run has other settings, or if `resume` is not set.
    """
    note = folder / "run.json"
    parts: list[Path] = []
    # Stop at the first damaged part: the last one may be incomplete after a system crash.
    while _is_whole(folder / _part_name(len(parts))):
        parts.append(folder / _part_name(len(parts)))
    found = sorted(folder.glob("part-*.parquet"))
    if found and not resume:
        raise InputError(
            f"{folder} holds an interrupted run ({len(found)} parts of {PART_TEXTS} texts): "
            f"add --resume to continue it, or delete the folder to start over."
        )
    if parts:
        try:
            started = read_json_object(note)
        except InputError as error:
            raise InputError(f"{error} Delete {folder} to start over.") from error
        _compare(started, settings, f"{folder} was started")
    else:
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} exists and is not a folder: move or delete it.")
        make_folder(folder)
        with replacing(note) as temporary:
            temporary.write_text(json.dumps(settings), encoding="utf-8")
    for stale in set(found) - set(parts):  # after a damaged part
        stale.unlink()
    return parts


def _is_whole(path: Path) -> bool:
    try:
        return path.is_file() and len(read_table(path)) > 0  # reads all of it, to verify its checksums
    except InputError:
        return False


def _finished_rows(out: Path, schema: pa.Schema, stream: Iterator[Document]) -> int:
    """Return the number of rows of a complete file; raise InputError if its settings or texts differ."""
    found = {**read_metadata(out), "columns": pq.read_schema(out).names}
    _compare(found, _settings(schema), f"{out} is complete, but was created")
    digests = []
    while part := list(islice(stream, PART_TEXTS)):
        digests.append(_digest(part))
    if pq.read_schema(out).metadata.get(DIGEST_KEY) != b" ".join(digests):
        raise InputError(f"{out} is complete, but holds other texts: delete it, or omit --resume.")
    with open_parquet(out) as file:  # reads all of it, to verify its checksums
        return sum(len(batch) for batch in read_batches(file, out, PART_TEXTS))


def _compare(found: dict[str, Any], expected: dict[str, Any], what: str) -> None:
    """Raise InputError naming the settings that differ."""
    changed = [key for key in expected if found.get(key) != expected[key]]
    if changed:
        was = ", ".join(f"{key} {found.get(key)!r}" for key in changed)
        now = ", ".join(f"{key} {expected[key]!r}" for key in changed)
        raise InputError(f"{what} with {was}, not {now}: use the same settings, or delete it to start over.")


def _settings(schema: pa.Schema) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(schema.metadata[METADATA_KEY])
    return {**about, "columns": schema.names}


def _skip_done(stream: Iterator[Document], parts: list[Path]) -> list[bytes]:
    """Skip the texts of finished parts and return their digests; raise InputError if they changed."""
    digests: list[bytes] = []
    for number, path in enumerate(parts):
        passed = list(islice(stream, pq.read_metadata(path).num_rows))
        digests.append(_digest(passed))
        if digests[-1] != pq.read_schema(path).metadata.get(DIGEST_KEY):
            first = number * PART_TEXTS + 1
            raise InputError(
                f"the texts changed since the interrupted run: texts {first} to "
                f"{first + PART_TEXTS - 1} differ from {path}. Delete {path.parent} to start over."
            )
    return digests


def _tag(schema: pa.Schema, digests: list[bytes]) -> pa.Schema:
    """Return the schema with the digest of each part's texts in its metadata."""
    return schema.with_metadata({**schema.metadata, DIGEST_KEY: b" ".join(digests)})


def _digest(documents: Iterable[Document]) -> bytes:
    """Return a digest of ids and texts."""
    fields = (field for document in documents for field in (document.id, document.text))
    encoded = (field.encode("utf-8", "surrogatepass") for field in fields)
    return short_digest((len(data).to_bytes(8, "little") + data for data in encoded), 16).encode()
