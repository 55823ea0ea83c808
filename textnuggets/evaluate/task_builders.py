"""Reranking and paraphrase tasks built from texts with the recipes of the paper (its appendix on data)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from textnuggets.errors import InputError
from textnuggets.io.corpora import read_records
from textnuggets.io.disk import make_folder
from textnuggets.io.documents import decode_utf8, raise_bad_line, read_lines
from textnuggets.io.files import replacing
from textnuggets.io.locks import writing
from textnuggets.io.progress import Progress
from textnuggets.search.bm25 import BM25

NEGATIVES = 19
WINDOW = 1024  # number of neighbouring paraphrases that BM25 searches for negatives
LEFT_OUT = 0.2  # share of sentences left out on each side
QUERY_WORDS, SECTION_WORDS = 30, 50  # minimum lengths; shorter texts are left out


class Question(NamedTuple):
    """A query, its answer and negatives."""

    query: str
    answer: str
    negatives: list[str]


# -------------------------------------------------------------------- passage reranking


def build_reranking(sources: Sequence[str], count: int | None = None, seed: int = 0) -> list[Question]:
    """Build questions from articles: the lead is the query, another section of the article the answer.

    Negatives are sections of other articles that BM25 ranks highest.

    Args:
        sources: Corpora of articles, whose records have `sections`.
        count: Maximum number of questions; default: all.
        seed: Seed of the choice of the answer among the sections.
    """
    leads: list[str] = []
    sections: list[str] = []
    owners: list[int] = []  # article of each section
    for record in read_records(sources):
        try:
            parts = [_joined(part["paras"]) for part in record.fields["sections"]]
            parts[0]
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise InputError(f"{record.place}: expected an article with 'sections' ({error!r}).") from error
        others = [part for part in parts[1:] if len(part.split()) >= SECTION_WORDS]
        if others and len(parts[0].split()) >= QUERY_WORDS:
            owners += [len(leads)] * len(others)
            leads.append(parts[0])
            sections += others
    if len(leads) < 2:
        raise InputError(f"{', '.join(sources)}: too few articles with a lead and other sections.")
    engine = BM25(sections)
    draw = random.Random(seed)
    sections_of: dict[int, list[int]] = {}
    for section, owner in enumerate(owners):
        sections_of.setdefault(owner, []).append(section)
    questions: list[Question] = []
    queries = leads[:count]
    with Progress("reranking", len(queries)) as progress:
        for article, lead in enumerate(queries):
            own = sections_of[article]
            found = engine.nearest([lead], NEGATIVES + len(own))[0]
            negatives = [sections[i] for i in found if owners[i] != article][:NEGATIVES]
            if len(negatives) < NEGATIVES:
                raise InputError(
                    f"{', '.join(sources)}: other articles have only {len(negatives)} sections; {NEGATIVES} are needed."
                )
            questions.append(Question(lead, sections[draw.choice(own)], negatives))
            progress.add(1)
    return questions


def _joined(paragraphs: Iterable[str]) -> str:
    return " ".join(" ".join(paragraph.split()) for paragraph in paragraphs)


# -------------------------------------------------------------------- paraphrase identification


def build_paraphrase(
    sources: Sequence[str], count: int | None = None, max_words: int = 256, seed: int = 0
) -> list[Question]:
    """Build questions from sentence pairs: a document of adjacent sentences is the query, their paraphrases the answer.

    On each side, a random 20% of the sentences are left out. Negatives are other documents that BM25 ranks highest.

    Args:
        sources: Files of sentence pairs in order: .tsv with two columns, or .jsonl with `pairs`.
        count: Maximum number of questions; default: all.
        max_words: Maximum number of words per document, on either side.
        seed: Seed of the choice of sentences to leave out.
    """
    draw = random.Random(seed)
    documents = [
        tuple(" ".join(_some([pair[side] for pair in group], draw)) for side in (0, 1))
        for group in _groups(_pairs(sources), max_words)
    ]
    if len(documents) <= NEGATIVES:
        raise InputError(
            f"{', '.join(sources)}: only {len(documents)} documents of {max_words} words; {NEGATIVES + 1} are needed."
        )
    questions: list[Question] = []
    total = min(len(documents), count or len(documents))
    block, engine, first = -1, None, 0
    with Progress("paraphrase", total) as progress:
        for number in range(total):
            if number // (WINDOW // 2) != block:  # move the window to the document and its neighbours
                block = number // (WINDOW // 2)
                first = max(0, block * (WINDOW // 2) - WINDOW // 4)
                engine = BM25([right for _, right in documents[first : first + WINDOW]])
            assert engine is not None
            left, right = documents[number]
            found = [first + int(i) for i in engine.nearest([left], NEGATIVES + 1)[0]]
            negatives = [documents[i][1] for i in found if i != number][:NEGATIVES]
            questions.append(Question(left, right, negatives))
            progress.add(1)
    return questions


def _pairs(sources: Sequence[str]) -> Iterator[tuple[str, str]]:
    for source in sources:
        path = Path(source)
        if ".tsv" in path.suffixes:
            if not path.is_file():
                raise InputError(f"{source}: no such file.")
            yield from read_lines(path, _two_columns, raise_bad_line)
        else:
            for record in read_records([source]):
                try:
                    for left, right in record.fields["pairs"]:
                        yield " ".join(left.split()), " ".join(right.split())
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise InputError(
                        f"{record.place}: expected 'pairs' of two texts each ({error!r})."
                    ) from error


def _two_columns(line: bytes, _: int) -> tuple[str, str]:
    fields = decode_utf8(line).split("\t")
    if len(fields) < 2:
        raise InputError("expected two columns separated by a tab.")
    return " ".join(fields[0].split()), " ".join(fields[1].split())


def _groups(pairs: Iterable[tuple[str, str]], limit: int) -> Iterator[list[tuple[str, str]]]:
    """Yield groups of adjacent pairs with at most `limit` words on either side."""
    group: list[tuple[str, str]] = []
    words = (0, 0)
    for pair in pairs:
        more = (len(pair[0].split()), len(pair[1].split()))
        if group and max(words[0] + more[0], words[1] + more[1]) > limit:
            yield group
            group, words = [], (0, 0)
        group.append(pair)
        words = (words[0] + more[0], words[1] + more[1])
    if group:
        yield group


def _some(sentences: list[str], draw: random.Random) -> list[str]:
    """Return the sentences without a random share of them; at least one is kept."""
    kept = [sentence for sentence in sentences if draw.random() >= LEFT_OUT]
    return kept or [draw.choice(sentences)]


# -------------------------------------------------------------------- writing


def write_task(folder: Path, questions: Sequence[Question], about: dict[str, Any]) -> None:
    """Write docs.txt and task.jsonl in the format of the paper's authors, and about.json.

    Args:
        folder: Folder of the task; created if missing.
        questions: Questions; their candidates are shuffled.
        about: Description for about.json; its `seed` is the seed of the shuffling.
    """
    draw = random.Random(about["seed"])
    numbers: dict[str, str] = {}
    docs: list[str] = []
    lines: list[str] = []
    for number, question in enumerate(questions):
        docs.append(f"Q{number}\t{_one_line(question.query)}\n")
        texts = [question.answer, *question.negatives]
        draw.shuffle(texts)
        for text in texts:
            if text not in numbers:
                numbers[text] = f"D{len(numbers)}"
                docs.append(f"{numbers[text]}\t{_one_line(text)}\n")
        record = {"source": f"Q{number}", "candidates": [numbers[text] for text in texts],
                  "answer": texts.index(question.answer)}  # fmt: skip
        lines.append(json.dumps(record) + "\n")
    make_folder(folder)
    contents = {"docs.txt": "".join(docs), "task.jsonl": "".join(lines)}
    contents["about.json"] = json.dumps(
        {**about, "questions": len(questions), "documents": len(numbers)}, indent=1
    )
    with writing(folder):
        for name, content in contents.items():
            with replacing(folder / name) as temporary:
                temporary.write_text(content, encoding="utf-8")


def _one_line(text: str) -> str:
    return " ".join(text.split())
