"""Corpora for training and evaluation, read as passages of adjacent sentences.

A corpus is a list of records, read from a file (.txt, .jsonl, .parquet, optionally gzipped), a folder of such
files, a dataset saved to disk by `datasets`, or a dataset on the Hugging Face Hub (`hf:name:config:split`).
The layout of a record is detected from its fields:

    {"text": "..."}                                     a plain text
    {"sections": [{"head": ..., "paras": [...]}, ...]}  an article
    {"chapters": [{"head": ..., "paras": [...]}, ...]}  a novel
    {"lang": "fr", "pairs": [["...", "..."], ...]}      aligned segments, English and another language
    {"translation": {"en": "...", "fr": "..."}}         one aligned pair, as in Hub datasets
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from textnuggets.errors import InputError, MissingExtraError
from textnuggets.io.documents import is_unicode, parse_json_object, raise_bad_line, read_lines
from textnuggets.io.sentences import sentence_spans

LAYOUTS = ("text", "sections", "chapters", "pairs", "translation")
FILE_KINDS = (".txt", ".jsonl", ".parquet", ".txt.gz", ".jsonl.gz")
HUB_PREFIX = "hf:"
RUN = 1000  # maximum number of consecutive one-pair records joined into one passage


class Passage(NamedTuple):
    """Adjacent sentences of one text, or aligned pairs, that may be joined into one document."""

    name: str
    """Origin: file and line, or dataset and row."""
    rows: list[tuple[str, ...]]


class Record(NamedTuple):
    """One record of a corpus and its origin (file and line, or dataset and row)."""

    place: str
    fields: dict[str, Any]


def read_passages(sources: Sequence[str], languages: Sequence[str] = ("en",)) -> Iterator[Passage]:
    """Yield the passages of corpora in order.

    Args:
        sources: Files, folders or `hf:name[:config[:split]]`.
        languages: One language for rows of single sentences; two, source and target, for rows of aligned
            pairs in that order.
    """
    yield from _passages(read_records(sources), languages)


def read_records(sources: Sequence[str]) -> Iterator[Record]:
    """Yield the unprocessed records of corpora in order."""
    checked = [(source, check_source(source)) for source in sources]
    for source, files in checked:
        yield from (
            _hub_records(source) if files is None else chain.from_iterable(_file_records(f) for f in files)
        )


def read_texts(sources: Sequence[str], languages: Sequence[str] = ("en",)) -> Iterator[str]:
    """Yield every sentence, then its whole passage as one text; for aligned pairs, both sides."""
    for passage in read_passages(sources, languages):
        for side in zip(*passage.rows, strict=True):
            yield from side
            yield " ".join(side)


def check_source(source: str) -> list[Path] | None:
    """Return the files of a source, or None for a Hub dataset; raise InputError if there are none."""
    if source.startswith(HUB_PREFIX):
        return None
    if not source:  # as a path, it would be the current folder
        raise InputError("the name of a corpus is empty: name a file or folder.")
    path = Path(source)
    if path.is_dir():
        if (path / "state.json").is_file():  # written by `Dataset.save_to_disk`
            return [path]
        files = sorted(file for file in path.iterdir() if file.name.endswith(FILE_KINDS))
        if not files:
            raise InputError(f"{source}: the folder contains no {', '.join(FILE_KINDS)} file.")
        return files
    if not path.is_file():
        raise InputError(f"{source}: no such file or folder. Name a Hub dataset as hf:name:config:split.")
    if not path.name.endswith(FILE_KINDS):
        raise InputError(f"{source}: unknown file type: use {', '.join(FILE_KINDS)}.")
    return [path]


def _file_records(path: Path) -> Iterator[Record]:
    if path.is_dir():
        for number, fields in enumerate(_datasets().load_from_disk(str(path)), 1):
            yield Record(f"{path}, row {number}", fields)
    elif path.suffix == ".parquet":
        yield from _parquet_records(path)
    else:
        is_json = ".jsonl" in path.suffixes

        def parse(line: bytes, number: int) -> Record:
            if is_json:
                return Record(f"{path}, line {number}", parse_json_object(line))
            try:
                return Record(f"{path}, line {number}", {"text": line.decode("utf-8-sig")})
            except UnicodeDecodeError as error:
                raise InputError(f"not UTF-8 (byte {error.start + 1}: {error.reason}).") from error

        yield from read_lines(path, parse, raise_bad_line)


def _parquet_records(path: Path) -> Iterator[Record]:
    from textnuggets.io.parquet import open_parquet, read_batches, to_rows

    number = 0
    with open_parquet(path) as file:
        for batch in read_batches(file, path, 256):
            for fields in to_rows(batch):
                number += 1
                if isinstance(fields, InputError):
                    raise InputError(f"{path}, row {number}: {fields}")
                yield Record(f"{path}, row {number}", fields)


def _hub_records(source: str) -> Iterator[Record]:
    name, config, split, *_ = [*source.removeprefix(HUB_PREFIX).split(":"), "", ""]
    load = _datasets().load_dataset
    number = 0
    try:
        for fields in load(name, config or None, split=split or "train", streaming=True):
            number += 1
            yield Record(f"{source}, row {number}", fields)
    except Exception as error:  # `datasets` raises many types: unknown name or split, network failure
        reason = str(error).strip().split("\n")[0]
        raise InputError(f"{source}, row {number + 1}: the dataset cannot be loaded ({reason}).") from error


def _datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("datasets", "train", "a Hugging Face dataset") from error
    return datasets


def _passages(records: Iterable[Record], languages: Sequence[str]) -> Iterator[Passage]:
    run: list[tuple[str, ...]] = []  # pairs from consecutive one-pair records
    opened = ""
    for place, fields in records:
        layout = next((name for name in LAYOUTS if fields.get(name) is not None), None)
        try:
            if layout == "translation":
                row = _pair(fields["translation"], languages)
                if all(row):
                    run.append(row)
                opened = opened or place
                if len(run) == RUN:
                    yield Passage(opened, run)
                    run, opened = [], ""
                continue
            if layout is None:
                found = ", ".join(map(repr, fields)) or "nothing"
                raise InputError(f"needs one of the fields {', '.join(LAYOUTS)}; found {found}.")
            if run:
                yield Passage(opened, run)
                run, opened = [], ""
            for rows in _rows(layout, fields, languages):
                if rows:
                    yield Passage(place, rows)
        except InputError as error:
            raise InputError(f"{place}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{place}: the field {layout!r} is not as expected ({error!r}).") from error
    if run:
        yield Passage(opened, run)


def _rows(layout: str, fields: dict[str, Any], languages: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
    """Yield the rows of each passage of one record."""
    if layout == "pairs":
        names = ("en", str(fields.get("lang", "xx")))
        rows = [_pair(dict(zip(names, pair, strict=True)), languages) for pair in fields["pairs"]]
        yield [row for row in rows if all(row)]
        return
    if len(languages) > 1:
        raise InputError(f"expected aligned pairs in {' and '.join(languages)}, got a single text.")
    if layout == "text":
        yield _sentences([fields["text"]], languages[0])
        return
    for part in fields[layout]:  # the paragraphs under one heading form one passage
        yield _sentences(part["paras"], languages[0])


def _pair(sides: dict[str, str], languages: Sequence[str]) -> tuple[str, ...]:
    for language in languages:
        if language not in sides:
            raise InputError(f"no text in {language!r}; found {', '.join(map(repr, sides))}.")
    return tuple(" ".join(_check(sides[language]).split()) for language in languages)


def _sentences(paragraphs: Sequence[str], language: str) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for paragraph in paragraphs:
        text = " ".join(_check(paragraph).split())
        found += [(text[start:end].strip(),) for start, end in sentence_spans(text, language)]
    return [row for row in found if row[0]]


def _check(text: Any) -> str:
    if not isinstance(text, str):
        raise InputError(f"a text is {type(text).__name__}; it must be a string.")
    if not is_unicode(text):
        raise InputError("the text contains an unpaired surrogate, so it is not valid Unicode.")
    return text
