"""Nuggets as columns of Arrow tables, `datasets`, pandas and polars, and back.

The columns are those of the Parquet file (docs/files.md), so that other engines can store them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from textnuggets.errors import InputError
from textnuggets.io.parquet import to_rows
from textnuggets.model.interface import TextInterface
from textnuggets.model.nuggets import Nuggets
from textnuggets.model.parquet import NUMBERS, SHAPES, nugget_schema, nuggets_of_row, to_table

COLUMNS = ("vectors", "scores", "positions", "spans", "tokens", "token_count", "windows")
WIDTHS = {"spans": 2, "windows": 4}


def to_arrow(
    nuggets: Sequence[Nuggets], ids: Sequence[str] | None = None, texts: Sequence[str] | None = None
) -> pa.Table:
    """Return nuggets as an Arrow table, one row per text.

    Args:
        nuggets: Nuggets of one model.
        ids: Id of each text; numbered from 1 by default.
        texts: Texts to be stored as well.
    """
    if not nuggets:
        raise InputError("there are no nuggets for a table.")
    names = [str(i) for i in range(1, len(nuggets) + 1)] if ids is None else [str(i) for i in ids]
    for given, what in ((names, "ids"), (texts, "texts")):
        if given is not None and len(given) != len(nuggets):
            raise InputError(f"{len(given)} {what} for {len(nuggets)} nuggets: give one for each.")
    first = nuggets[0].vectors
    schema = nugget_schema(first.shape[1], str(first.dtype), {}, with_text=texts is not None)
    return to_table(names, nuggets, schema, texts)


def to_nuggets(table: Any) -> list[Nuggets]:
    """Return the nuggets of an Arrow table, a dataset, or a frame of pandas or polars with the columns of `to_arrow`."""
    arrow = _arrow(table)
    if missing := [name for name in COLUMNS if name not in arrow.column_names]:
        raise InputError(f"the table has no column {missing[0]!r}: it needs {', '.join(COLUMNS)}.")
    names = [name for name in SHAPES if name in arrow.column_names and name != "text"]
    plain = arrow.select(names).combine_chunks()
    for name in ("vectors", *WIDTHS):
        at, column = plain.column_names.index(name), _fixed(plain[name], name, WIDTHS.get(name))
        plain = plain.set_column(at, name, column)
    if "id" not in names:
        plain = plain.append_column("id", pa.array([str(i) for i in range(1, len(plain) + 1)], pa.string()))
    found = []
    for batch in plain.to_batches():
        others = to_rows(batch.select([name for name in batch.schema.names if name not in NUMBERS]))
        for index, row in enumerate(others):
            if isinstance(row, InputError):
                raise row
            found.append(nuggets_of_row(batch, index, row))
    return found


def encode_column(
    model: TextInterface, column: str = "text", query: bool = False, **options: Any
) -> Callable[[Mapping[str, Sequence[str]]], dict[str, list[Any]]]:
    """Return a function for `dataset.map(..., batched=True)` that adds the nuggets of a column of texts.

    Args:
        model: Model that encodes them.
        column: Name of the column.
        query: Whether the texts are queries, which have a ratio of their own.
        options: Arguments of `TextInterface.encode`.
    """
    encode = model.encode_query if query else model.encode_document

    def add_columns(batch: Mapping[str, Sequence[str]]) -> dict[str, list[Any]]:
        if column not in batch:
            raise InputError(f"there is no column {column!r}: choose one of {', '.join(batch)}.")
        found = encode(list(batch[column]), **options)
        return {
            name: [list(item.tokens) if name == "tokens" else getattr(item, name) for item in found]
            for name in COLUMNS
        }

    return add_columns


def encode_frame(
    frame: Any, model: TextInterface, column: str = "text", query: bool = False, **options: Any
) -> Any:
    """Return a frame of pandas or polars with the nuggets of a column of texts as further columns.

    Args:
        frame: Frame of pandas or polars.
        model: Model that encodes the texts.
        column: Name of the column.
        query: Whether the texts are queries, which have a ratio of their own.
        options: Arguments of `TextInterface.encode`.
    """
    library = type(frame).__module__.split(".")[0]
    if library not in ("pandas", "polars"):
        raise InputError(f"encode_frame takes a frame of pandas or polars, got {type(frame).__name__}.")
    if taken := [name for name in COLUMNS if name in frame.columns]:
        raise InputError(f"the frame already has a column {taken[0]!r}: rename it.")
    if column not in frame.columns:
        raise InputError(
            f"there is no column {column!r}: choose one of {', '.join(map(str, frame.columns))}."
        )
    encode = model.encode_query if query else model.encode_document
    table = to_arrow(encode(frame[column].to_list(), **options)).select(COLUMNS)
    if library == "polars":
        import polars

        return frame.hstack(polars.from_arrow(table))
    import pandas

    return pandas.concat([frame, table.to_pandas().set_index(frame.index)], axis=1)


def _arrow(table: Any) -> pa.Table:
    library = type(table).__module__.split(".")[0]
    if isinstance(table, pa.Table):
        return table
    if library == "pandas":
        return pa.Table.from_pandas(table, preserve_index=False)
    if library == "polars":
        return table.to_arrow()
    if library == "datasets":
        return table.with_format("arrow")[:]
    raise InputError(
        f"to_nuggets takes an Arrow table, a dataset, or a frame of pandas or polars, got {type(table).__name__}."
    )


def _fixed(column: pa.ChunkedArray, name: str, width: int | None) -> pa.Array:
    """Return a column of lists of lists, of any kind, as lists of fixed-size lists; the width is that of the first by default."""
    rows = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    inner = rows.flatten()
    values = inner.flatten()
    widths = pc.list_value_length(inner)
    width = width or (widths[0].as_py() if len(inner) else 1)
    uneven = len(inner) and pc.any(pc.not_equal(widths, width)).as_py()
    if rows.null_count or inner.null_count or values.null_count or uneven:
        raise InputError(f"the column {name!r} has null values, or lists of different lengths.")
    kind = values.type if pa.types.is_floating(values.type) else pa.int64()
    fixed = pa.FixedSizeListArray.from_arrays(values.cast(kind), width)
    lengths = pc.list_value_length(rows).to_numpy()
    offsets = pa.array([0, *lengths.cumsum().tolist()], pa.int32())
    return pa.ListArray.from_arrays(offsets, fixed)
