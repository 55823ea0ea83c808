"""Damage to a Parquet file: other types, nulls, invalid UTF-8, nested values, other columns and metadata."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

INVALID = (b"\xff\xfe", b"\xed\xa0\x80", b"caf\xe9")
NUMBERS = (float("nan"), float("inf"), -1.0, 1e30)


def change_table(
    content: bytes, random: Random, change_tree: Callable[[Any], tuple[Any, str]]
) -> tuple[bytes, str]:
    """Return a changed table and what was done; raise ValueError if the content is no table."""
    try:
        table = pq.read_table(io.BytesIO(content))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"no table ({error})") from error
    if not table.num_columns:
        raise ValueError("no columns")
    number = random.randrange(table.num_columns)
    name = table.column_names[number]
    kind = random.choice(
        ("type", "type", "nulls", "bytes", "rename", "drop", "twice", "rows", "metadata", "values")
    )
    if kind == "metadata":
        return _change_metadata(table, random, change_tree)
    if kind == "rename":
        other = random.choice(("", "x", name.upper(), *table.column_names))
        table = table.rename_columns([other if i == number else n for i, n in enumerate(table.column_names)])
    elif kind == "drop":
        table = table.remove_column(number)
    elif kind == "twice":
        table = table.append_column(name, table.column(number))
    elif kind == "rows":
        rows = random.choice(([0] * 3, list(reversed(range(table.num_rows)))))
        table = table.take(rows) if table.num_rows and random.random() < 0.7 else table.slice(0, 0)
    else:
        column = _change_column(table.column(number), random, kind)
        table = table.set_column(number, name, column)
    return _write(table, random), f"{kind} of column {name!r}"


def _change_column(column: Any, random: Random, kind: str) -> Any:
    values = column.to_pylist()
    size = len(values)
    if kind == "nulls":
        return pa.array([None if random.random() < 0.5 else value for value in values], column.type)
    if kind == "bytes":
        return _strings([random.choice((*INVALID, b"the cat")) for _ in values])
    if kind == "values":
        try:
            return pa.array([_other_numbers(value, random) for value in values], column.type)
        except (pa.ArrowException, OverflowError):
            return pa.array([None] * size, column.type)
    made: tuple[Callable[[], Any], ...] = (
        lambda: pa.array(range(size)),
        lambda: pa.array([str(value)[:50] for value in values]),
        lambda: pa.array([str(value)[:50] for value in values], pa.large_string()),
        lambda: pa.array([str(value)[:50] for value in values]).dictionary_encode(),
        lambda: pa.array([b"\xff\x00"] * size, pa.binary()),
        lambda: pa.array([float("nan")] * size),
        lambda: pa.array([True] * size),
        lambda: pa.nulls(size),
        lambda: pa.array([{"text": "x", "y": [None]}] * size),
        lambda: pa.array([[[0.5, None], None, []]] * size),
        lambda: pa.array([[]] * size, pa.list_(pa.float32())),
        lambda: pa.array([[[1.0, 2.0], [3.0]]] * size),
        lambda: pa.array([10**15] * size, pa.timestamp("us")),
        lambda: pa.array([1] * size, pa.duration("ns")),
    )
    return random.choice(made)()


def _other_numbers(value: Any, random: Random) -> Any:
    """Return nested lists with other numbers or lengths."""
    if isinstance(value, list):
        if random.random() < 0.2:
            return value[: len(value) // 2]
        return [_other_numbers(item, random) if random.random() < 0.3 else item for item in value]
    if isinstance(value, float):
        return random.choice(NUMBERS)
    if isinstance(value, int):
        return random.choice((0, -1, value + 1, 10**6, 2**31 - 1))
    return "" if isinstance(value, str) else None


def _strings(values: list[bytes]) -> Any:
    """Return an array of strings without the check that they are UTF-8, as other writers make them."""
    binary = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), binary.buffers())


def _change_metadata(
    table: Any, random: Random, change_tree: Callable[[Any], tuple[Any, str]]
) -> tuple[bytes, str]:
    """Change the values that the schema keeps beside the columns, most of them JSON."""
    metadata = dict(table.schema.metadata or {b"textnuggets": b"{}"})
    key = random.choice(sorted(metadata))
    try:
        changed, note = change_tree(json.loads(metadata[key]))
        metadata[key] = json.dumps(changed).encode()
    except ValueError:
        metadata[key], note = random.choice((b"", b"\xff", b"[]", b"../m", b"null")), "other bytes"
    return _write(table.replace_schema_metadata(metadata), random), f"metadata {key!r}: {note}"


def rewrite_table(content: bytes, random: Random) -> bytes:
    """Return the same table in another file."""
    return _write(pq.read_table(io.BytesIO(content)), random)


def _write(table: Any, random: Random) -> bytes:
    stream = io.BytesIO()
    pq.write_table(
        table,
        stream,
        compression=random.choice(("none", "snappy", "zstd")),
        row_group_size=random.choice((1, 3, 1000)),
        use_dictionary=random.random() < 0.5,
    )
    return stream.getvalue()
