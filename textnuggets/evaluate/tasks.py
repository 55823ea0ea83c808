"""Reranking and retrieval tasks, read from folders.

The layout is recognized by the files, each of which may be gzipped:

    docs.txt (id TAB text), task.jsonl ({"source", "candidates", "answer"})   one right candidate of several
    corpus.jsonl, queries.jsonl ({"id", "text"}), qrels.tsv (query, document, grade)   retrieval
    corpus.jsonl, queries.jsonl ({"_id", "text"}), qrels/SPLIT.tsv                     retrieval, as in BEIR
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from textnuggets.errors import InputError
from textnuggets.io.documents import decode_utf8, parse_json_object, raise_bad_line, read_lines
from textnuggets.io.hashing import digest_files

RETRIEVAL = ("corpus.jsonl", "queries.jsonl", "qrels.tsv")


@dataclass
class Task:
    """Queries, documents, and the candidates and relevance grades of every query."""

    name: str
    kind: str
    """`reranking` (a few candidates, one of them correct) or `retrieval` (all documents are candidates)."""
    queries: list[str]
    documents: list[str]
    candidates: list[list[int]]
    """Indices of the documents to rank for each query; the order carries no information."""
    grades: list[dict[int, int]]
    """Grades of the relevant documents of each query; higher is better. A judged document that is missing from the
    corpus has a negative index, so it cannot be found."""
    sha256: str
    reading: dict[str, Any] = field(default_factory=dict)
    """Arguments of `read_task`, for the results file."""

    def head(self, count: int | None) -> Task:
        """Return the task with only the first queries, and for reranking only their candidates."""
        if count is None:
            return self
        queries, candidates, grades = self.queries[:count], self.candidates[:count], self.grades[:count]
        if self.kind == "retrieval":
            return replace(self, queries=queries, candidates=candidates, grades=grades)
        used = sorted({number for numbers in candidates for number in numbers})
        index = {number: i for i, number in enumerate(used)}
        return replace(
            self,
            queries=queries,
            documents=[self.documents[number] for number in used],
            candidates=[[index[number] for number in numbers] for numbers in candidates],
            grades=[{index[number]: grade for number, grade in judged.items()} for judged in grades],
        )


def read_task(
    folder: str | Path,
    seed: int = 0,
    grades: Mapping[int, int] | None = None,
    lowercase: bool = False,
    split: str | None = None,
) -> Task:
    """Read a task from its folder.

    Args:
        folder: Folder with the files of one of the three layouts.
        seed: Seed of the shuffling of candidates, since files often list the answer first.
        grades: Mapping from grades in the qrels to grades where higher is better; others are left out; default: as
            they are.
        lowercase: Convert all texts to lower case, for collections in capitals.
        split: Name of a file in `qrels/`, such as dev; default: qrels.tsv, else qrels/test.tsv, else the only split.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; expected the folder of a task.")
    if _find(folder, "task.jsonl") is not None:
        if split is not None:
            raise InputError(f"{folder}: a reranking task has no splits; leave out the split {split!r}.")
        task = _read_reranking(folder, random.Random(seed))
    elif any(_find(folder, name) is not None for name in RETRIEVAL) or (folder / "qrels").is_dir():
        split = _choose_split(folder, split)
        task = _read_retrieval(folder, grades, split)
    else:
        raise InputError(
            f"{folder}: found neither task.jsonl and docs.txt nor corpus.jsonl, queries.jsonl and qrels.tsv "
            "(or qrels/test.tsv)."
        )
    task.reading = {
        "seed": seed,
        "grades": None if grades is None else dict(grades),
        "lowercase": lowercase,
        "split": split,
    }
    if not task.queries:
        raise InputError(f"{folder}: no query has a relevant document.")
    if not task.documents:
        raise InputError(f"{folder}: the task has no documents.")
    if lowercase:
        task.queries = [text.lower() for text in task.queries]
        task.documents = [text.lower() for text in task.documents]
    return task


def _name(folder: Path) -> str:
    """Return the last two parts of the path, such as paraphrases/dev."""
    return "/".join(folder.resolve().parts[-2:])


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _open(folder: Path, name: str) -> Path:
    path = _find(folder, name)
    if path is None:
        raise InputError(f"{folder}: {name} is missing.")
    return path


def _choose_split(folder: Path, split: str | None) -> str | None:
    """Return the split to read from `qrels/`; None for qrels.tsv."""
    if split is None and _find(folder, "qrels.tsv") is not None:
        return None
    endings = (".tsv", ".tsv.gz")
    found = sorted(
        {path.name.split(".tsv")[0] for path in (folder / "qrels").glob("*") if path.name.endswith(endings)}
    )
    if not found:
        where = "qrels.tsv and qrels/test.tsv are" if split is None else f"qrels/{split}.tsv is"
        raise InputError(f"{folder}: {where} missing: it needs the grades of documents for queries.")
    if split is None:
        split = found[0] if len(found) == 1 else "test"
    if split not in found:
        raise InputError(f"{folder}: there is no qrels/{split}.tsv; choose the split {' or '.join(found)}.")
    return split


def _json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every record with its file and line."""

    def parse(line: bytes, number: int) -> tuple[str, dict[str, Any]]:
        return f"{path}, line {number}", parse_json_object(line)

    return read_lines(path, parse, raise_bad_line)


def _tabbed(path: Path, columns: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns of every line with its file and line; further tabs belong to the last column."""

    def parse(line: bytes, number: int) -> tuple[str, list[str]]:
        fields = decode_utf8(line).rstrip("\r\n").split("\t", columns - 1)
        if len(fields) != columns:
            raise InputError(f"expected {columns} columns separated by tabs, found {len(fields)}.")
        return f"{path}, line {number}", fields

    return read_lines(path, parse, raise_bad_line)


def _read_reranking(folder: Path, order: random.Random) -> Task:
    docs, lines = _open(folder, "docs.txt"), _open(folder, "task.jsonl")
    texts = dict(fields for _, fields in _tabbed(docs, 2))
    numbers: dict[str, int] = {}
    queries: list[str] = []
    candidates: list[list[int]] = []
    grades: list[dict[int, int]] = []
    for place, record in _json_lines(lines):
        try:
            source, ids, answer = record["source"], list(record["candidates"]), int(record["answer"])
            right = dict(enumerate(ids))[answer]
            for name in (source, *ids):
                texts[name]
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise InputError(
                f"{place}: source, candidates and answer do not match docs.txt ({error!r})."
            ) from error
        order.shuffle(ids)
        queries.append(texts[source])
        candidates.append([numbers.setdefault(name, len(numbers)) for name in ids])
        grades.append({numbers[right]: 1})
    documents = [texts[name] for name in numbers]
    return Task(_name(folder), "reranking", queries, documents, candidates, grades, digest_files(docs, lines))


def _read_retrieval(folder: Path, meaning: Mapping[int, int] | None, split: str | None) -> Task:
    names = ("corpus.jsonl", "queries.jsonl", "qrels.tsv" if split is None else f"qrels/{split}.tsv")
    corpus, asked, qrels = files = [_open(folder, name) for name in names]
    numbers: dict[str, int] = {}
    documents: list[str] = []
    for place, record in _json_lines(corpus):
        numbers[_id(place, record)] = len(documents)
        title = str(record.get("title") or "")
        documents.append(f"{title} {_text(place, record)}".strip())
    judged = _read_grades(qrels, meaning, numbers)
    queries = {_id(place, record): _text(place, record) for place, record in _json_lines(asked)}
    kept = [name for name in queries if name in judged]
    everything = list(range(len(documents)))
    return Task(
        name=_name(folder) if split is None else f"{folder.resolve().name}/{split}",
        kind="retrieval",
        queries=[queries[name] for name in kept],
        documents=documents,
        candidates=[everything if split is None else _others(everything, numbers.get(name)) for name in kept],
        grades=[judged[name] for name in kept],
        sha256=digest_files(*files),
    )


def _read_grades(
    qrels: Path, meaning: Mapping[int, int] | None, numbers: Mapping[str, int]
) -> dict[str, dict[int, int]]:
    """Return the grades of the relevant documents of each query, by the id of the query."""
    judged: dict[str, dict[int, int]] = {}
    missing: dict[str, int] = {}
    for line, (place, (query, document, written)) in enumerate(_tabbed(qrels, 3)):
        try:
            grade = int(written)
        except ValueError as error:
            if not line:  # header
                continue
            raise InputError(f"{place}: the grade {written!r} is not an integer.") from error
        if meaning is not None:
            grade = meaning.get(grade, 0)
        if grade > 0:
            if document not in numbers:
                missing.setdefault(document, -1 - len(missing))
            judged.setdefault(query, {})[numbers.get(document, missing.get(document, 0))] = grade
    return judged


def _others(everything: list[int], same: int | None) -> list[int]:
    """Return all documents but the one with the id of the query, which BEIR leaves out: it is the query itself."""
    return everything if same is None else everything[:same] + everything[same + 1 :]


def _id(place: str, record: dict[str, Any]) -> str:
    """Return the id of a document or query: `_id` as in BEIR, or `id`."""
    field = "_id" if "_id" in record else "id"
    value = record.get(field)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(f"{place}: the field {field!r} must be a string or an integer, got {value!r}.")
    return str(value)


def _text(place: str, record: dict[str, Any]) -> str:
    value = record.get("text")
    if not isinstance(value, str):
        raise InputError(f"{place}: the field 'text' must be a string, got {value!r}.")
    return value
