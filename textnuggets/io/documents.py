"""Texts from files: .txt, .jsonl, .parquet, gzipped or not, or standard input.

A bad line is reported by file and number, and can be skipped without losing the others.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from textnuggets.errors import InputError

COLLECTED = (".txt", ".txt.gz", ".md", ".jsonl", ".jsonl.gz", ".parquet")  # what is taken from a folder
FORMATS = ".txt, .jsonl or .parquet (the first two also .gz), or '-' for standard input"


class Document(NamedTuple):
    """One text and its name."""

    id: str
    text: str
    metadata: dict[str, Any] | None = None
    """The other fields of its line, if there are any."""
    is_named: bool = True
    """Whether the id is its own, and not the number of its line."""


BadLine = Callable[[InputError], None]


def raise_bad_line(error: InputError) -> None:
    """What happens to a bad line unless something else is asked for."""
    raise error


def read_documents(
    source: str, on_bad: BadLine = raise_bad_line, with_metadata: bool = False
) -> Iterator[Document]:
    """Stream the texts of a file.

    Args:
        source: A path. `.txt` has one text a line, whose id is the line number from 1; `.jsonl`
            has a `text` and perhaps an `id` on each line; `.parquet` the same as columns.
            `-` reads standard input: JSON lines if the first line is an object, else plain.
        on_bad: Called with an InputError for each line that cannot be used; raises it by default.
        with_metadata: Whether to read the other columns of a Parquet file, too.

    A file that is missing or of an unknown kind is an error at once; lines are read as needed.
    """
    if source == "-":
        return _standard_input(on_bad)
    path = Path(source)
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if kind not in {".txt", ".jsonl", ".parquet"} or (kind == ".parquet" and path.suffix == ".gz"):
        raise InputError(f"{source}: cannot tell what is in it by its name: use {FORMATS}.")
    if not path.is_file():
        raise InputError(f"{source}: no such file.")
    if kind == ".parquet":
        return _parquet(path, on_bad, with_metadata)
    return read_lines(path, _json_line if kind == ".jsonl" else _plain_line, on_bad)


def read_collection(source: str, on_bad: BadLine = raise_bad_line) -> Iterator[Document]:
    """Stream the documents of a file, or of all files of a folder and its folders, in order, with metadata.

    An .md file is one document, and so is a .txt file in a folder; a .txt file alone has one a line. A document
    without an id of its own is named by its file and line.
    """
    folder = Path(source)
    if source != "-" and folder.suffix == ".md" and folder.is_file():
        return _collected(folder, folder.parent, on_bad)
    if not folder.is_dir():
        name = "stdin" if source == "-" else folder.name
        return _named(read_documents(source, on_bad, with_metadata=True), name)
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name.endswith(COLLECTED)]
    if not files:
        raise InputError(f"{source}: the folder holds no {', '.join(COLLECTED)} file.")
    return chain.from_iterable(_collected(file, folder, on_bad) for file in files)


def _collected(file: Path, folder: Path, on_bad: BadLine) -> Iterator[Document]:
    name = file.relative_to(folder).as_posix()
    if not is_unicode(name):
        on_bad(InputError(f"{name!r}: the name of the file is no text."))
    elif file.name.endswith((".txt", ".md", ".txt.gz")):
        try:
            with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as content:
                yield Document(name, decode_utf8(content.read()).removeprefix("\ufeff"))
        except InputError as error:
            on_bad(InputError(f"{file}: {error}"))
        except (EOFError, OSError, zlib.error) as error:
            on_bad(InputError(f"{file}: {error}."))
    else:
        yield from _named(read_documents(str(file), on_bad, with_metadata=True), name)


def _named(documents: Iterator[Document], name: str) -> Iterator[Document]:
    """Documents that are named by their file and line where they have no name."""
    for document in documents:
        yield document if document.is_named else document._replace(id=f"{name}:{document.id}")


Parsed = TypeVar("Parsed")
Parse = Callable[[bytes, int], Parsed]


def read_lines(path: Path, parse: Parse[Parsed], on_bad: BadLine) -> Iterator[Parsed]:
    """Parse every line of a file, gzipped or not; `parse` gets its bytes and its number from 1."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        yield from _lines(iter(lines), str(path), parse, on_bad)


def _standard_input(on_bad: BadLine) -> Iterator[Document]:
    if sys.stdin is None:
        raise InputError("standard input is closed.")
    stream = sys.stdin.buffer
    opening: list[bytes] = []  # up to the first line that is not blank, which tells what this is
    for line in stream:
        opening.append(line)
        if line.strip():
            break
    is_json = bool(opening) and opening[-1].removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    parse = _json_line if is_json else _plain_line
    yield from _lines(chain(opening, stream), "standard input", parse, on_bad)


def _lines(lines: Iterator[bytes], source: str, parse: Parse[Parsed], on_bad: BadLine) -> Iterator[Parsed]:
    """Parse each line, so that one that fails is named and does not end the others."""
    number = 0
    while True:
        number += 1
        try:
            line = next(lines)
        except StopIteration:
            return
        except (EOFError, OSError, zlib.error) as error:  # a damaged .gz cannot be read on
            raise InputError(f"{source}, line {number}: {error}.") from error
        if parse is not _plain_line and not line.strip():
            continue
        try:
            parsed = parse(line, number)
        except InputError as error:
            on_bad(InputError(f"{source}, line {number}: {error}"))
        else:
            yield parsed


def _plain_line(line: bytes, number: int) -> Document:
    text = decode_utf8(line.rstrip(b"\r\n"))
    return Document(str(number), text.removeprefix("\ufeff") if number == 1 else text, is_named=False)


def parse_json_object(line: bytes) -> dict[str, Any]:
    """The JSON object that a line holds."""
    try:
        record = json.loads(decode_utf8(line).removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON ({error}).") from error
    if not isinstance(record, dict):
        raise InputError(f"a JSON object with a 'text' is needed, not {type(record).__name__}.")
    return record


def _json_line(line: bytes, number: int) -> Document:
    record = parse_json_object(line)
    text, name = record.get("text"), record.get("id", number)
    if not isinstance(text, str):
        found = f"is {type(text).__name__}" if "text" in record else "is missing"
        raise InputError(f"the field 'text' {found}; it must be a string.")
    if isinstance(name, bool) or not isinstance(name, (str, int)):
        raise InputError(f"the field 'id' is {type(name).__name__}; it must be a string or number.")
    if not (is_unicode(text) and is_unicode(str(name))):  # "\ud800" is valid JSON, but no text
        raise InputError("half a surrogate pair stands alone, so it is no Unicode text.")
    rest = {key: value for key, value in record.items() if key not in ("id", "text")}
    return Document(str(name), text, rest or None, "id" in record)


def is_unicode(text: str) -> bool:
    """Whether a string is text that can be written: Python also allows halves of surrogate pairs."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def decode_utf8(line: bytes) -> str:
    """The text of some bytes, or an InputError."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 (byte {error.start + 1}: {error.reason}).") from error


def open_parquet(path: str | Path) -> Any:
    """A `pyarrow.parquet.ParquetFile`, or an InputError that names the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a Parquet file ({str(error).splitlines()[0]}).") from error


def _parquet(path: Path, on_bad: BadLine, with_metadata: bool) -> Iterator[Document]:
    with open_parquet(path) as file:
        names = file.schema_arrow.names
        if names.count("text") != 1 or names.count("id") > 1:
            raise InputError(f"{path}: needs one column 'text', has only {', '.join(names)}.")
        rest = [name for name in dict.fromkeys(names) if name not in ("text", "id")] if with_metadata else []
        columns = ["text", *(["id"] if "id" in names else []), *rest]
        number = 0
        for batch in file.iter_batches(batch_size=1024, columns=columns):
            texts = batch.column("text").to_pylist()
            ids = batch.column("id").to_pylist() if "id" in names else [None] * len(texts)
            others = batch.select(rest).to_pylist() if rest else [None] * len(texts)
            for text, name, other in zip(texts, ids, others, strict=True):
                number += 1
                if not isinstance(text, str):
                    on_bad(InputError(f"{path}, row {number}: 'text' is {type(text).__name__}."))
                    continue
                yield Document(str(number if name is None else name), text, other, name is not None)
