"""Tasks made from texts, with the paper's recipes (its appendix on data): the answer, and 19 that look like it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from textnuggets.errors import InputError
from textnuggets.io.corpora import read_records
from textnuggets.io.documents import decode_utf8, raise_bad_line, read_lines
from textnuggets.io.files import replacing
from textnuggets.io.progress import Progress
from textnuggets.search.bm25 import BM25

NEGATIVES = 19
WINDOW = 1024  # paraphrases among which BM25 looks for negatives, around the document
LEFT_OUT = 0.2  # the share of sentences each side lacks
QUERY_WORDS, SECTION_WORDS = 30, 50  # what is shorter says too little


class Question(NamedTuple):
    """A query, the right document, and wrong ones."""

    query: str
    answer: str
    negatives: list[str]


# -------------------------------------------------------------------- passage reranking


def build_reranking(sources: Sequence[str], count: int | None = None, seed: int = 0) -> list[Question]:
    """The lead of an article as query, another section of it as answer, sections of others as negatives.

    Args:
        sources: Corpora of articles, records with `sections`.
        count: How many questions at most.
        seed: Which section is the answer.
    """
    leads: list[str] = []
    sections: list[str] = []
    owners: list[int] = []  # the article each section belongs to
    for record in read_records(sources):
        try:
            parts = [_joined(part["paras"]) for part in record.fields["sections"]]
            parts[0]
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise InputError(f"{record.place}: an article with 'sections' is needed ({error!r}).") from error
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
    wanted = leads[:count]
    with Progress("reranking", len(wanted)) as progress:
        for article, lead in enumerate(wanted):
            own = sections_of[article]
            found = engine.nearest([lead], NEGATIVES + len(own))[0]
            negatives = [sections[i] for i in found if owners[i] != article][:NEGATIVES]
            if len(negatives) < NEGATIVES:
                raise InputError(
                    f"{', '.join(sources)}: other articles have {len(negatives)} sections; {NEGATIVES} are needed."
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
    """Documents of adjacent sentences against documents of their paraphrases, each side lacking some.

    Args:
        sources: Files of sentence pairs in their order: .tsv with two columns, or .jsonl with `pairs`.
        count: How many questions at most.
        max_words: The most words of a document, on either side.
        seed: Which sentences are left out.
    """
    draw = random.Random(seed)
    documents = [
        tuple(" ".join(_some([pair[side] for pair in group], draw)) for side in (0, 1))
        for group in _groups(_pairs(sources), max_words)
    ]
    if len(documents) <= NEGATIVES:
        raise InputError(
            f"{', '.join(sources)}: {len(documents)} documents of {max_words} words; {NEGATIVES + 1} are needed."
        )
    questions: list[Question] = []
    wanted = min(len(documents), count or len(documents))
    block, engine, first = -1, None, 0
    with Progress("paraphrase", wanted) as progress:
        for number in range(wanted):
            if number // (WINDOW // 2) != block:  # a window that holds the document and its neighbours
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
                        f"{record.place}: 'pairs' of two texts each are needed ({error!r})."
                    ) from error


def _two_columns(line: bytes, _: int) -> tuple[str, str]:
    fields = decode_utf8(line).split("\t")
    if len(fields) < 2:
        raise InputError("two columns with a tab between them are needed.")
    return " ".join(fields[0].split()), " ".join(fields[1].split())


def _groups(pairs: Iterable[tuple[str, str]], limit: int) -> Iterator[list[tuple[str, str]]]:
    """Adjacent pairs until one side would pass the limit."""
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
    """Most of the sentences; at least one."""
    kept = [sentence for sentence in sentences if draw.random() >= LEFT_OUT]
    return kept or [draw.choice(sentences)]


# -------------------------------------------------------------------- writing


def write_task(folder: Path, questions: Sequence[Question], about: dict[str, Any]) -> None:
    """docs.txt and task.jsonl in the authors' format, and about.json; the answer stands in a random place."""
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
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"docs.txt": "".join(docs), "task.jsonl": "".join(lines)}
    contents["about.json"] = json.dumps(
        {**about, "questions": len(questions), "documents": len(numbers)}, indent=1
    )
    for name, content in contents.items():
        with replacing(folder / name) as temporary:
            temporary.write_text(content, encoding="utf-8")


def _one_line(text: str) -> str:
    return " ".join(text.split())
