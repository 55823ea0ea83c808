"""Corpora for training and evaluation: texts of many layouts as passages of adjacent sentences.

A corpus is a list of records, from a file (.txt, .jsonl, .parquet, gzipped or not), a folder of such
files, a dataset that `datasets` saved to disk, or one of the Hugging Face Hub (`hf:name:config:split`).
What a record holds tells its layout:

    {"text": "..."}                                     a plain text
    {"sections": [{"head": ..., "paras": [...]}, ...]}  an article
    {"chapters": [{"head": ..., "paras": [...]}, ...]}  a novel
    {"lang": "fr", "pairs": [["...", "..."], ...]}      a document of segments, English and another
    {"translation": {"en": "...", "fr": "..."}}         one aligned pair, as the Hub has them
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from textnuggets.errors import InputError, MissingExtraError
from textnuggets.io.documents import is_unicode, open_parquet, parse_json_object, raise_bad_line, read_lines
from textnuggets.io.sentences import sentence_spans

LAYOUTS = ("text", "sections", "chapters", "pairs", "translation")
FILE_KINDS = (".txt", ".jsonl", ".parquet", ".txt.gz", ".jsonl.gz")
HUB_PREFIX = "hf:"
RUN = 1000  # pairs that stand one a record are joined at most so many at a time


class Passage(NamedTuple):
    """Adjacent sentences of one text, or aligned pairs: what may be joined into one document."""

    name: str
    """File and line, or the dataset and row, it came from."""
    rows: list[tuple[str, ...]]


class Record(NamedTuple):
    """One line of a corpus, and where it stands."""

    place: str
    fields: dict[str, Any]


def read_passages(sources: Sequence[str], languages: Sequence[str] = ("en",)) -> Iterator[Passage]:
    """Stream the passages of corpora, in order.

    Args:
        sources: Files, folders or `hf:name[:config[:split]]`.
        languages: One language: its sentences, each alone in its row. Two, source and target: aligned
            pairs in that order.
    """
    yield from _passages(read_records(sources), languages)


def read_records(sources: Sequence[str]) -> Iterator[Record]:
    """Stream the records of corpora as they are, in order."""
    checked = [(source, check_source(source)) for source in sources]
    for source, files in checked:
        yield from (
            _hub_records(source) if files is None else chain.from_iterable(_file_records(f) for f in files)
        )


def read_texts(sources: Sequence[str], languages: Sequence[str] = ("en",)) -> Iterator[str]:
    """Every sentence of corpora alone, and with those around it; of aligned pairs, both sides."""
    for passage in read_passages(sources, languages):
        for side in zip(*passage.rows, strict=True):
            yield from side
            yield " ".join(side)


def check_source(source: str) -> list[Path] | None:
    """The files a source stands for, None for a dataset of the Hub, or an InputError."""
    if source.startswith(HUB_PREFIX):
        return None
    path = Path(source)
    if path.is_dir():
        if (path / "state.json").is_file():  # what `Dataset.save_to_disk` writes
            return [path]
        files = sorted(file for file in path.iterdir() if file.name.endswith(FILE_KINDS))
        if not files:
            raise InputError(f"{source}: the folder holds no {', '.join(FILE_KINDS)} file.")
        return files
    if not path.is_file():
        raise InputError(
            f"{source}: no such file or folder. A dataset of the Hub is written hf:name:config:split."
        )
    if not path.name.endswith(FILE_KINDS):
        raise InputError(f"{source}: cannot tell what is in it by its name: use {', '.join(FILE_KINDS)}.")
    return [path]


def _file_records(path: Path) -> Iterator[Record]:
    if path.is_dir():
        for number, fields in enumerate(_datasets().load_from_disk(str(path)), 1):
            yield Record(f"{path}, row {number}", fields)
    elif path.suffix == ".parquet":
        number = 0
        with open_parquet(path) as file:
            for batch in file.iter_batches(batch_size=256):
                for fields in batch.to_pylist():
                    number += 1
                    yield Record(f"{path}, row {number}", fields)
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


def _hub_records(source: str) -> Iterator[Record]:
    name, config, split, *_ = [*source.removeprefix(HUB_PREFIX).split(":"), "", ""]
    load = _datasets().load_dataset
    number = 0
    try:
        for fields in load(name, config or None, split=split or "train", streaming=True):
            number += 1
            yield Record(f"{source}, row {number}", fields)
    except Exception as error:  # `datasets` raises of every kind: a missing name, a split, the network
        reason = str(error).strip().split("\n")[0]
        raise InputError(f"{source}, row {number + 1}: the dataset cannot be loaded ({reason}).") from error


def _datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("datasets", "train", "a Hugging Face dataset") from error
    return datasets


def _passages(records: Iterable[Record], languages: Sequence[str]) -> Iterator[Passage]:
    run: list[tuple[str, ...]] = []  # pairs that stand one a record, and follow each other
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
                raise InputError(f"needs one of the fields {', '.join(LAYOUTS)}; has {found}.")
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
    """The passages of one record."""
    if layout == "pairs":
        names = ("en", str(fields.get("lang", "xx")))
        rows = [_pair(dict(zip(names, pair, strict=True)), languages) for pair in fields["pairs"]]
        yield [row for row in rows if all(row)]
        return
    if len(languages) > 1:
        raise InputError(f"aligned pairs are needed, in {' and '.join(languages)}; this is one text.")
    if layout == "text":
        yield _sentences([fields["text"]], languages[0])
        return
    for part in fields[layout]:  # what stands under one heading belongs together
        yield _sentences(part["paras"], languages[0])


def _pair(sides: dict[str, str], languages: Sequence[str]) -> tuple[str, ...]:
    for language in languages:
        if language not in sides:
            raise InputError(f"no text in {language!r}; it has {', '.join(map(repr, sides))}.")
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
        raise InputError("half a surrogate pair stands alone, so it is no Unicode text.")
    return text
