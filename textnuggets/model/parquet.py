"""Parquet files of nuggets, readable by pandas, polars, DuckDB, LanceDB and `datasets`.

Each row is a text. `vectors` is a list of fixed-size lists; the file's metadata records the model,
ratio and version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from textnuggets import __version__
from textnuggets.errors import InputError
from textnuggets.io.documents import open_parquet
from textnuggets.io.files import check_output, replacing
from textnuggets.model.layout import ORDINARY, Layout
from textnuggets.model.nuggets import Nuggets

if TYPE_CHECKING:
    from transformers import PreTrainedModel

METADATA_KEY = b"textnuggets"
COLUMNS = {"id", "vectors", "scores", "positions", "spans", "tokens", "token_count", "windows"}
LAYOUT = pa.struct(
    {
        "words": pa.list_(pa.int64()),
        "runs": pa.list_(pa.struct({"before": pa.int64(), "space": pa.string()})),
    }
)
DTYPES = {"float32": pa.float32(), "float16": pa.float16(), "float64": pa.float64()}


def nugget_schema(
    dimensions: int,
    dtype: str,
    metadata: dict[str, Any],
    with_text: bool = False,
    with_fidelity: bool = False,
) -> pa.Schema:
    """Return the schema of a nugget file."""
    pair = pa.list_(pa.int64(), 2)
    fields = [
        pa.field("id", pa.string()),
        pa.field("vectors", pa.list_(pa.list_(DTYPES[dtype], dimensions))),
        pa.field("scores", pa.list_(pa.float32())),
        pa.field("positions", pa.list_(pa.int64())),
        pa.field("spans", pa.list_(pair)),
        pa.field("tokens", pa.list_(pa.string())),
        pa.field("token_count", pa.int64()),
        pa.field("windows", pa.list_(pa.list_(pa.int64(), 4))),
        pa.field("layout", LAYOUT),
    ]
    if with_fidelity:
        fields += [pa.field("ratio", pa.float64()), pa.field("fidelity", pa.float64())]
    if with_text:
        fields.append(pa.field("text", pa.string()))
    about = {"version": __version__, "dimensions": dimensions, "dtype": dtype, **metadata}
    return pa.schema(fields, metadata={METADATA_KEY: json.dumps(about).encode()})


def to_table(
    ids: Sequence[str],
    nuggets: Sequence[Nuggets],
    schema: pa.Schema,
    texts: Sequence[str] | None = None,
    fidelities: Sequence[tuple[float, float]] | None = None,
) -> pa.Table:
    """Return a table with `schema`; numbers are copied from NumPy to Arrow without Python objects."""
    counts = [len(item) for item in nuggets]
    windows = [len(item.windows) for item in nuggets]
    columns: dict[str, Any] = {
        "id": pa.array(ids, pa.string()),
        "vectors": _lists([n.vectors for n in nuggets], counts, schema.field("vectors").type),
        "scores": _lists([n.scores for n in nuggets], counts, schema.field("scores").type),
        "positions": _lists([n.positions for n in nuggets], counts, schema.field("positions").type),
        "spans": _lists([n.spans for n in nuggets], counts, schema.field("spans").type),
        "tokens": pa.array([list(n.tokens) for n in nuggets], schema.field("tokens").type),
        "token_count": pa.array([n.token_count for n in nuggets], pa.int64()),
        "windows": _lists([n.windows for n in nuggets], windows, schema.field("windows").type),
        "layout": pa.array([_layout_value(n.layout) for n in nuggets], LAYOUT),
    }
    if fidelities is not None:
        columns["ratio"] = pa.array([ratio for ratio, _ in fidelities], pa.float64())
        columns["fidelity"] = pa.array([fidelity for _, fidelity in fidelities], pa.float64())
    if texts is not None:
        columns["text"] = pa.array(texts, pa.string())
    return pa.table(columns, schema=schema)


def save_nuggets(path: str | Path, nuggets: Sequence[Nuggets], ids: Sequence[str] | None = None) -> None:
    """Write nuggets to a Parquet file atomically; ids are numbered from 1 by default."""
    check_output(Path(path))
    if not nuggets:
        raise InputError(f"{path}: there are no nuggets to save.")
    ids = [str(i) for i in range(1, len(nuggets) + 1)] if ids is None else [str(i) for i in ids]
    if len(ids) != len(nuggets):
        raise InputError(f"{len(ids)} ids for {len(nuggets)} nuggets: give one id for each.")
    first = nuggets[0].vectors
    schema = nugget_schema(first.shape[1], str(first.dtype), {})
    write_parquet(Path(path), schema, [to_table(ids, nuggets, schema)])


def load_nuggets(path: str | Path, model: PreTrainedModel | None = None) -> tuple[list[str], list[Nuggets]]:
    """Load the ids and nuggets of a file into memory; `iter_nuggets` streams them.

    Args:
        path: Parquet file of nuggets.
        model: Model that will decode them or be compared with them; raise InputError if another one encoded them.
    """
    if model is not None:
        check_encoder(path, model)
    rows = list(iter_nuggets(path))
    return [name for name, _ in rows], [item for _, item in rows]


def iter_nuggets(path: str | Path, batch_size: int = 256) -> Iterator[tuple[str, Nuggets]]:
    """Stream `(id, nuggets)` from a file."""
    for name, nuggets, _ in iter_rows(path, batch_size):
        yield name, nuggets


def iter_rows(path: str | Path, batch_size: int = 256) -> Iterator[tuple[str, Nuggets, str | None]]:
    """Stream `(id, nuggets, text)` from a file; the text is None if it was not stored."""
    with open_nugget_file(path) as file:
        for batch in file.iter_batches(batch_size=batch_size):
            has_text = "text" in batch.schema.names
            texts = batch.column("text").to_pylist() if has_text else [None] * len(batch)
            for (name, nuggets), text in zip(_from_batch(batch), texts, strict=True):
                yield name, nuggets, text


def is_nugget_file(path: str | Path) -> bool:
    """Return whether a file is a nugget file."""
    if Path(path).suffix != ".parquet":
        return False
    try:
        open_nugget_file(path).close()
    except InputError:
        return False
    return True


def read_metadata(path: str | Path) -> dict[str, Any]:
    """Return the metadata of a file: model, ratio, version, dimensions and dtype."""
    with open_nugget_file(path) as file:
        written = file.schema_arrow.metadata[METADATA_KEY]
    try:
        metadata = json.loads(written)
    except ValueError as error:
        raise InputError(f"{path}: its metadata is damaged ({error}).") from error
    return metadata if isinstance(metadata, dict) else {}


def check_encoder(path: str | Path, model: PreTrainedModel) -> None:
    """Raise InputError if other weights than this model's encoded a file; a file of `save_nuggets` records none."""
    from textnuggets.model.fingerprint import fingerprint

    about = read_metadata(path)
    recorded = about.get("weights")
    if recorded is not None and recorded != (weights := fingerprint(model)):
        raise InputError(
            f"{path} was encoded by the model {about.get('model')!r} with weights {recorded}, not {weights}: use the model "
            f"that encoded it."
        )


def open_nugget_file(path: str | Path) -> pq.ParquetFile:
    """Open a nugget file; raise InputError if it is missing or another kind of file."""
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file.")
    file = open_parquet(path)
    names = set(file.schema_arrow.names)
    if METADATA_KEY not in (file.schema_arrow.metadata or {}) or not names >= COLUMNS:
        file.close()
        raise InputError(f"{path}: a Parquet file, but not of nuggets; create one with: textnuggets encode")
    return file


def write_parquet(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
    """Write tables as row groups, atomically, and return the number of rows."""
    rows = 0
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table.cast(schema))
            rows += len(table)
    return rows


def _lists(arrays: list[np.ndarray], lengths: list[int], kind: pa.DataType) -> pa.Array:
    """Return arrays `(k, ...)` as one list column; `kind` is list<x> or list<fixed-size list<x>>."""
    inner = kind.value_type
    fixed = pa.types.is_fixed_size_list(inner)
    element = inner.value_type if fixed else inner
    flat = pa.array(np.concatenate(arrays).reshape(-1) if arrays else [], element)
    values = pa.FixedSizeListArray.from_arrays(flat, type=inner) if fixed else flat
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=kind)


def _from_batch(batch: pa.RecordBatch) -> Iterator[tuple[str, Nuggets]]:
    ids = batch.column("id").to_pylist()
    tokens = batch.column("tokens").to_pylist()
    has_layout = "layout" in batch.schema.names  # absent in files of early versions
    layouts = batch.column("layout").to_pylist() if has_layout else [None] * len(batch)
    for row, name in enumerate(ids):
        values: dict[str, Any] = {
            key: _to_numpy(batch.column(key)[row].values)
            for key in ("vectors", "scores", "positions", "spans", "windows")
        }
        layout = _layout_of(layouts[row])
        yield name, Nuggets(**values, tokens=tuple(tokens[row]), layout=layout)


def _layout_value(layout: Layout) -> dict[str, Any] | None:
    """Return a layout as a column value, or None if it is unknown."""
    if not layout.words:
        return None
    return {
        "words": layout.words,
        "runs": [{"before": before, "space": space} for before, space in layout.runs],
    }


def _layout_of(value: dict[str, Any] | None) -> Layout:
    if value is None:
        return ORDINARY
    return Layout(tuple(value["words"]), tuple((run["before"], run["space"]) for run in value["runs"]))


def _to_numpy(values: pa.Array) -> np.ndarray:
    if pa.types.is_fixed_size_list(values.type):
        return values.flatten().to_numpy(zero_copy_only=False).reshape(-1, values.type.list_size)
    return values.to_numpy(zero_copy_only=False)
