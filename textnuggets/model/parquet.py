"""Parquet files of nuggets, readable by pandas, polars, DuckDB, LanceDB and `datasets`.

Each row is a text. `vectors` is a list of fixed-size lists; the file's metadata records the model,
ratio and version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from textnuggets import __version__
from textnuggets.errors import InputError
from textnuggets.io.files import check_output
from textnuggets.io.parquet import open_parquet, read_batches, to_rows, write_parquet
from textnuggets.model.layout import ORDINARY, Layout
from textnuggets.model.nuggets import Nuggets

if TYPE_CHECKING:
    from transformers import PreTrainedModel

METADATA_KEY = b"textnuggets"
OPTIONAL = {"layout", "text"}  # the layout is absent in files of early versions
NUMBERS = ("vectors", "scores", "positions", "spans", "windows")  # columns that become NumPy arrays
LAYOUT = pa.struct(
    {
        "words": pa.list_(pa.int64()),
        "runs": pa.list_(pa.struct({"before": pa.int64(), "space": pa.string()})),
    }
)
SHAPES = {
    "id": "string",
    "vectors": "list<float[d]>",
    "scores": "list<float>",
    "positions": "list<integer>",
    "spans": "list<integer[2]>",
    "tokens": "list<string>",
    "token_count": "integer",
    "windows": "list<integer[4]>",
    "layout": "struct<words: list<integer>, runs: list<struct<before: integer, space: string>>>",
    "text": "string",
}
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
    number = 0
    with open_nugget_file(path) as file:
        columns = [name for name in SHAPES if name in file.schema_arrow.names]
        for batch in read_batches(file, path, batch_size, columns):
            others = [name for name in batch.schema.names if name not in NUMBERS]
            for index, row in enumerate(to_rows(batch.select(others))):
                number += 1
                try:
                    if isinstance(row, InputError):
                        raise row
                    nuggets = nuggets_of_row(batch, index, row)
                except InputError as error:
                    raise InputError(f"{path}, row {number}: {error}") from error
                yield row["id"], nuggets, row.get("text")


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
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: its metadata is damaged ({error}).") from error
    if not isinstance(metadata, dict):
        return {}
    for key in ("model", "weights"):
        if not isinstance(metadata.get(key), str | None):
            raise InputError(f"{path}: its metadata is damaged ({key!r} is {metadata[key]!r}, not a string).")
    return metadata


def check_encoder(path: str | Path, model: PreTrainedModel) -> None:
    """Raise InputError if other weights than this model's encoded a file; a file of `save_nuggets` records none."""
    from textnuggets.model.fingerprint import fingerprint, has_fingerprint

    about = read_metadata(path)
    recorded = about.get("weights")
    if recorded is not None and not has_fingerprint(model, recorded):
        weights = fingerprint(model)
        raise InputError(
            f"{path} was encoded by the model {about.get('model')!r} with weights {recorded}, not {weights}: use the model "
            f"that encoded it."
        )


def open_nugget_file(path: str | Path) -> pq.ParquetFile:
    """Open a nugget file; raise InputError if it is missing or another kind of file."""
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file.")
    file = open_parquet(path)
    names = file.schema_arrow.names
    is_complete = set(names) >= SHAPES.keys() - OPTIONAL and all(names.count(name) <= 1 for name in SHAPES)
    if METADATA_KEY not in (file.schema_arrow.metadata or {}) or not is_complete:
        file.close()
        raise InputError(f"{path}: a Parquet file, but not of nuggets; create one with: textnuggets encode")
    for field in file.schema_arrow:
        if (expected := SHAPES.get(field.name)) not in (None, _shape(field.type)):
            file.close()
            raise InputError(f"{path}: the column {field.name!r} is {field.type}, not {expected}.")
    return file


def _shape(kind: pa.DataType) -> str:
    """Return a type without the widths of numbers and the dimensions of vectors, as in `SHAPES`."""
    if types.is_list(kind) or types.is_large_list(kind):
        return f"list<{_shape(kind.value_type)}>"
    if types.is_fixed_size_list(kind):
        is_vector = types.is_floating(kind.value_type) and kind.list_size > 0
        return f"{_shape(kind.value_type)}[{'d' if is_vector else kind.list_size}]"
    if types.is_struct(kind):
        return f"struct<{', '.join(f'{part.name}: {_shape(part.type)}' for part in kind)}>"
    names = {types.is_string: "string", types.is_large_string: "string", types.is_integer: "integer"}
    names[types.is_floating] = "float"
    return next((name for is_kind, name in names.items() if is_kind(kind)), str(kind))


def _lists(arrays: list[np.ndarray], lengths: list[int], kind: pa.DataType) -> pa.Array:
    """Return arrays `(k, ...)` as one list column; `kind` is list<x> or list<fixed-size list<x>>."""
    inner = kind.value_type
    fixed = pa.types.is_fixed_size_list(inner)
    element = inner.value_type if fixed else inner
    flat = pa.array(np.concatenate(arrays).reshape(-1) if arrays else [], element)
    values = pa.FixedSizeListArray.from_arrays(flat, type=inner) if fixed else flat
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=kind)


def nuggets_of_row(batch: pa.RecordBatch, row: int, others: dict[str, Any]) -> Nuggets:
    """Return the nuggets of a row; raise InputError if a value is missing, negative or not finite.

    Args:
        batch: The columns `NUMBERS`, among others.
        row: Index in the batch.
        others: The other columns of the row.
    """
    values: dict[str, Any] = {key: _to_numpy(batch.column(key)[row], key) for key in NUMBERS}
    tokens = others["tokens"]
    for key, is_null in (("id", others["id"] is None), ("tokens", tokens is None or None in tokens)):
        if is_null:
            raise InputError(f"the column {key!r} has null values.")
    for key in ("vectors", "scores"):
        if not np.isfinite(values[key]).all():
            raise InputError(f"the column {key!r} has NaN or infinite values: encode the text again.")
    for key in ("positions", "spans", "windows"):
        if (values[key] < 0).any():
            raise InputError(f"the column {key!r} has negative values.")
    return Nuggets(**values, tokens=tuple(tokens), layout=_layout_of(others.get("layout")))


def _layout_value(layout: Layout) -> dict[str, Any] | None:
    """Return a layout as a column value, or None if it is unknown."""
    if not layout.words:
        return None
    return {
        "words": layout.words,
        "runs": [{"before": before, "space": space} for before, space in layout.runs],
    }


def _layout_of(value: dict[str, Any] | None) -> Layout:
    if value is None:  # unknown, as in files of early versions
        return ORDINARY
    words, runs = value["words"], value["runs"]
    if None in (words, runs) or None in words or None in runs or any(None in run.values() for run in runs):
        raise InputError("the column 'layout' has null values.")
    return Layout(tuple(words), tuple((run["before"], run["space"]) for run in runs))


def _to_numpy(value: pa.Scalar, name: str) -> np.ndarray:
    values = value.values
    flat = values
    if values is not None and types.is_fixed_size_list(values.type):
        flat = values.flatten()
    if values is None or values.null_count or flat.null_count:
        raise InputError(f"the column {name!r} has null values.")
    numbers = flat.to_numpy(zero_copy_only=False)
    return numbers if flat is values else numbers.reshape(-1, values.type.list_size)
