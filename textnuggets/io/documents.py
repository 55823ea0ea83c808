"""Documents from .txt, .jsonl and .parquet files, optionally gzipped, or standard input.

Errors name the file and line; a bad line can be skipped without losing the rest.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from textnuggets.errors import InputError

COLLECTED = (".txt", ".txt.gz", ".md", ".jsonl", ".jsonl.gz", ".parquet")  # file types read from a folder
FORMATS = ".txt, .jsonl or .parquet (the first two also .gz), or '-' for standard input"


class Document(NamedTuple):
    """A text and its id."""

    id: str
    text: str
    metadata: dict[str, Any] | None = None
    """The other fields of its record; None without any."""
    is_named: bool = True
    """Whether the id comes from the record rather than from the line number."""
    place: str | None = None
    """File and line it was read from, for error messages."""


BadLine = Callable[[InputError], None]


def raise_bad_line(error: InputError) -> None:
    """Raise the error of a bad line; the default handler."""
    raise error


def read_documents(
    source: str, on_bad: BadLine = raise_bad_line, with_metadata: bool = False
) -> Iterator[Document]:
    """Stream the documents of a file.

    Args:
        source: Path to a file, or `-` for standard input. `.txt` holds one text per line, with the line number
            from 1 as its id; `.jsonl` an object with `text` and an optional `id` per line; `.parquet` columns
            of those names. Standard input is read as JSON lines if its first line is an object, else as text.
        on_bad: Called with an InputError for each unusable line; raises it by default.
        with_metadata: Whether to also read the other columns of a Parquet file.

    A missing file, unknown file type or closed input raises InputError immediately; lines are read lazily.
    """
    if source == "-":
        return _standard_lines(standard_input(), on_bad)
    path = Path(source)
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if kind not in {".txt", ".jsonl", ".parquet"} or (kind == ".parquet" and path.suffix == ".gz"):
        raise InputError(f"{source}: unknown file type: use {FORMATS}.")
    if not path.is_file():
        raise InputError(f"{source}: no such file.")
    if kind == ".parquet":
        return _parquet(path, on_bad, with_metadata)
    parse = _json_line if kind == ".jsonl" else _plain_line
    return _placed(_numbered_lines(path, parse, on_bad), source)


def read_collection(source: str, on_bad: BadLine = raise_bad_line) -> Iterator[Document]:
    """Stream the documents of a file, or of all files in a folder and its subfolders, with metadata.

    An .md file is one document, and so is a .txt file in a folder; a .txt file given by itself holds one document
    per line. Documents without an id are named by file and line.
    """
    folder = Path(source)
    if source != "-" and folder.suffix == ".md" and folder.is_file():
        return _collected(folder, folder.parent, on_bad)
    if not folder.is_dir():
        name = "stdin" if source == "-" else folder.name
        return _named(read_documents(source, on_bad, with_metadata=True), name)
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name.endswith(COLLECTED)]
    if not files:
        raise InputError(f"{source}: the folder contains no {', '.join(COLLECTED)} file.")
    return chain.from_iterable(_collected(file, folder, on_bad) for file in files)


def _collected(file: Path, folder: Path, on_bad: BadLine) -> Iterator[Document]:
    name = file.relative_to(folder).as_posix()
    if not is_unicode(name):
        on_bad(InputError(f"{name!r}: the file name is not valid Unicode."))
    elif file.name.endswith((".txt", ".md", ".txt.gz")):
        try:
            with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as content:
                text = decode_utf8(content.read()).removeprefix("\ufeff")
            yield Document(name, text, place=str(file))
        except InputError as error:
            on_bad(InputError(f"{file}: {error}"))
        except (EOFError, OSError, zlib.error) as error:
            on_bad(InputError(f"{file}: {error}."))
    else:
        yield from _named(read_documents(str(file), on_bad, with_metadata=True), name)


def _named(documents: Iterator[Document], name: str) -> Iterator[Document]:
    """Name documents without an id by file and line."""
    for document in documents:
        yield document if document.is_named else document._replace(id=f"{name}:{document.id}")


Parsed = TypeVar("Parsed")
Parse = Callable[[bytes, int], Parsed]


def read_lines(path: Path, parse: Parse[Parsed], on_bad: BadLine) -> Iterator[Parsed]:
    """Parse every line of a file, gzipped or not; `parse` takes its bytes and its number from 1."""
    for _, parsed in _numbered_lines(path, parse, on_bad):
        yield parsed


def _numbered_lines(path: Path, parse: Parse[Parsed], on_bad: BadLine) -> Iterator[tuple[int, Parsed]]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        yield from _lines(iter(lines), str(path), parse, on_bad)


def _placed(documents: Iterator[tuple[int, Document]], source: str) -> Iterator[Document]:
    """Add source and line number to documents."""
    for number, document in documents:
        yield document._replace(place=f"{source}, line {number}")


def standard_input() -> BinaryIO:
    """Return standard input as bytes; raise InputError if it is closed."""
    if sys.stdin is None:
        raise InputError("standard input is closed.")
    return sys.stdin.buffer


def _standard_lines(stream: BinaryIO, on_bad: BadLine) -> Iterator[Document]:
    opening: list[bytes] = []  # up to the first non-blank line, which decides the format
    for line in stream:
        opening.append(line)
        if line.strip():
            break
    is_json = bool(opening) and opening[-1].removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    parse = _json_line if is_json else _plain_line
    source = "standard input"
    yield from _placed(_lines(chain(opening, stream), source, parse, on_bad), source)


def _lines(
    lines: Iterator[bytes], source: str, parse: Parse[Parsed], on_bad: BadLine
) -> Iterator[tuple[int, Parsed]]:
    """Yield the number and the parsed content of each line, passing errors with file and line number to `on_bad`."""
    number = 0
    while True:
        number += 1
        try:
            line = next(lines)
        except StopIteration:
            return
        except (EOFError, OSError, zlib.error) as error:  # nothing after the damage in a .gz can be read
            raise InputError(f"{source}, line {number}: {error}.") from error
        if parse is not _plain_line and not line.strip():
            continue
        try:
            parsed = parse(line, number)
        except InputError as error:
            on_bad(InputError(f"{source}, line {number}: {error}"))
        else:
            yield number, parsed


def _plain_line(line: bytes, number: int) -> Document:
    text = decode_utf8(line.rstrip(b"\r\n"))
    return Document(str(number), text.removeprefix("\ufeff") if number == 1 else text, is_named=False)


def parse_json_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object on a line; raise InputError if it is not one."""
    try:
        record = json.loads(decode_utf8(line).removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON ({error}).") from error
    if not isinstance(record, dict):
        raise InputError(f"expected a JSON object, got {type(record).__name__}.")
    return record


def _json_line(line: bytes, number: int) -> Document:
    record = parse_json_object(line)
    text, name = record.get("text"), record.get("id", number)
    if not isinstance(text, str):
        found = f"is {type(text).__name__}" if "text" in record else "is missing"
        raise InputError(f"the field 'text' {found}; it must be a string.")
    if isinstance(name, bool) or not isinstance(name, (str, int)):
        raise InputError(f"the field 'id' is {type(name).__name__}; it must be a string or number.")
    if not (is_unicode(text) and is_unicode(str(name))):  # "\ud800" is valid JSON, but not valid Unicode
        raise InputError("the line contains an unpaired surrogate, so it is not valid Unicode.")
    rest = {key: value for key, value in record.items() if key not in ("id", "text")}
    return Document(str(name), text, rest or None, "id" in record)


def is_unicode(text: str) -> bool:
    """Return whether a string can be encoded as UTF-8, i.e. contains no unpaired surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def decode_utf8(line: bytes) -> str:
    """Decode UTF-8; raise InputError with the position of the first bad byte."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 (byte {error.start + 1}: {error.reason}).") from error


def _parquet(path: Path, on_bad: BadLine, with_metadata: bool) -> Iterator[Document]:
    from textnuggets.io.parquet import open_parquet, read_batches, to_rows

    with open_parquet(path) as file:
        names = file.schema_arrow.names
        if names.count("text") != 1 or names.count("id") > 1:
            raise InputError(
                f"{path}: needs one column 'text' and at most one 'id'; found {', '.join(names)}."
            )
        rest = [name for name in dict.fromkeys(names) if name not in ("text", "id")] if with_metadata else []
        columns = ["text", *(["id"] if "id" in names else []), *rest]
        number = 0
        for batch in read_batches(file, path, 1024, columns):
            for row in to_rows(batch):
                number += 1
                if isinstance(row, InputError):
                    on_bad(InputError(f"{path}, row {number}: {row}"))
                    continue
                text, name = row.pop("text"), row.pop("id", None)
                if not isinstance(text, str):
                    on_bad(InputError(f"{path}, row {number}: 'text' is {type(text).__name__}."))
                    continue
                place = f"{path}, row {number}"
                yield Document(
                    str(number if name is None else name), text, row or None, name is not None, place
                )
