"""Reading and writing Parquet files: page checksums, and errors that name the file and row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from textnuggets.errors import InputError
from textnuggets.io.files import replacing

# Damaged files raise Arrow errors; wrong checksums raise OSError; invalid names in a schema UnicodeDecodeError.
DAMAGE = (pa.ArrowException, OSError, UnicodeDecodeError)


def open_parquet(path: str | Path) -> pq.ParquetFile:
    """Open a Parquet file to read with checksums verified; raise InputError if it is not one."""
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        _ = file.schema_arrow.names  # decodes them
        about = file.metadata
        groups = sum(about.row_group(number).num_rows for number in range(about.num_row_groups))
    except DAMAGE as error:
        raise InputError(f"{path}: not a Parquet file ({_reason(error)}).") from error
    if groups != about.num_rows:
        file.close()
        raise InputError(f"{path}: damaged (its parts have {groups} rows, not {about.num_rows}).")
    return file


def read_batches(
    file: pq.ParquetFile, path: str | Path, batch_size: int, columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an open file; raise InputError with the last good row if it is damaged."""
    batches = file.iter_batches(batch_size=batch_size, columns=columns)
    done = 0
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            break
        except DAMAGE as error:
            raise InputError(f"{path}: damaged after row {done} ({_reason(error)}).") from error
        yield batch
        done += len(batch)
    _check_rows(file, path, done)


def read_table(path: str | Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a whole file; raise InputError if it is damaged."""
    with open_parquet(path) as file:
        try:
            table = file.read(columns=columns)
        except DAMAGE as error:
            raise InputError(f"{path}: damaged ({_reason(error)}).") from error
        _check_rows(file, path, len(table))
        return table


def to_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any] | InputError]:
    """Yield the rows of a batch as Python values; for a row that has none, such as invalid UTF-8, its error."""
    try:
        yield from batch.to_pylist()
        return
    except (ValueError, OverflowError, pa.ArrowException):  # find out which rows cannot be converted
        pass
    columns = list(zip(batch.schema.names, batch.columns, strict=True))
    for number in range(len(batch)):
        try:
            yield {name: _value(name, column[number]) for name, column in columns}
        except InputError as error:
            yield error


def _value(name: str, value: pa.Scalar) -> Any:
    """Return a value as a Python object; raise InputError naming its column if there is none."""
    try:
        return value.as_py()
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 (byte {error.start + 1}: {error.reason})"
    except (ValueError, OverflowError, pa.ArrowException) as error:
        reason = f"cannot be read ({_reason(error)})"
    raise InputError(f"the column {name!r} {reason}.")


def write_parquet(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
    """Write tables as row groups with page checksums, atomically, and return the number of rows."""
    rows = 0
    with (
        replacing(path) as temporary,
        pq.ParquetWriter(temporary, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        for table in tables:
            writer.write_table(table.cast(schema))
            rows += len(table)
    return rows


def _check_rows(file: pq.ParquetFile, path: str | Path, found: int) -> None:
    # Checksums do not cover the headers of pages, and Arrow accepts pages that lack rows.
    if found != file.metadata.num_rows:
        raise InputError(f"{path}: damaged (it has {found} rows, not {file.metadata.num_rows}).")


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()).removesuffix(".") or type(error).__name__
