"""Evidence: does the passage that a search shows hold the answer, and how long is it?

Questions with known answer strings are asked of long documents, each of several passages joined. A question counts if the text
shown is from its document and contains one of its answers as whole words.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.measuring import record
from textnuggets import NuggetIndex, NuggetModel, load
from textnuggets.errors import InputError
from textnuggets.io.corpora import read_records
from textnuggets.search.bm25 import BM25
from textnuggets.search.passages import whole_sentences

WORDS = 200  # of a passage of the other systems
Embed = Callable[[Sequence[str]], NDArray[np.floating]]


class Question(NamedTuple):
    """Question about one document."""

    query: str
    answers: list[str]
    document: int
    """Index of the document that holds the answer."""


@dataclass(frozen=True)
class Setting:
    """Long documents, and questions about them."""

    documents: list[str]
    questions: list[Question]


class Shown(NamedTuple):
    """Text that a system shows for a question."""

    document: int
    text: str


def make_setting(questions: str, passages: Sequence[str], joined: int) -> Setting:
    """Join the passages of the questions and others to long documents, in random order.

    Args:
        questions: JSON lines with `query`, `positive` (the passage that answers) and `answers` (strings in it).
        passages: Other passages.
        joined: Number of passages per document.
    """
    records = (item.fields for item in read_records([questions]))
    rows = [row for row in records if _holds(row.get("positive", ""), row.get("answers", []))]
    if not rows:
        raise InputError(f"{questions} has no question with `answers` that are in its `positive`.")
    distinct = list(dict.fromkeys([*(row["positive"] for row in rows), *passages]))
    random.Random(0).shuffle(distinct)
    place = {passage: number // joined for number, passage in enumerate(distinct)}
    documents = ["\n\n".join(distinct[i : i + joined]) for i in range(0, len(distinct), joined)]
    return Setting(
        documents, [Question(row["query"], row["answers"], place[row["positive"]]) for row in rows]
    )


def evidence(model: str, plain: str, questions: str, passages: Sequence[str], joined: int) -> None:
    """Compare the passages of nuggets with the best sentence of one vector per passage, and of BM25."""
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(plain, device="cpu")

    def embed(texts: Sequence[str]) -> NDArray[np.floating]:
        return np.asarray(encoder.encode(list(texts), normalize_embeddings=True, show_progress_bar=False))

    setting = make_setting(questions, passages, joined)
    rows = measure_all(load(model), embed, setting)
    print(json.dumps(rows, indent=1))
    ours, theirs = (rows[name]["answered"] for name in ("nuggets", "one vector, equal bytes"))
    record(
        "evidence",
        "the answers in the best sentence of one vector per passage, at equal bytes",
        "10 points more",
        {"questions": len(setting.questions), "documents": len(setting.documents), "joined": joined},
        {"ratio": round(ours / max(theirs, 0.01), 3), "points": round(ours - theirs, 2), "rows": rows},
    )


def measure_all(model: NuggetModel, embed: Embed, setting: Setting) -> dict[str, dict[str, Any]]:
    """Return the share of questions answered, the mean characters shown and the bytes of vectors of each system."""
    rows: dict[str, dict[str, Any]] = {}
    first, every, size = _ask_nuggets(model, setting)
    rows["nuggets"] = _summary(setting, first, size)
    rows["nuggets, all passages"] = _summary(setting, every, size)
    total = sum(len(document.split()) for document in setting.documents)
    vector = embed([setting.documents[0]]).shape[1] * 2  # as float16
    equal = max(1, round(total * vector / size))
    for name, words in (("", WORDS), (", equal bytes", equal)):
        cut = [
            (number, part)
            for number, text in enumerate(setting.documents)
            for part in _cut_words(text, words)
        ]
        sentence, whole = _ask_vectors(embed, cut, setting.questions)
        rows[f"one vector{name}"] = _summary(setting, sentence, len(cut) * vector) | {"words": words}
        rows[f"one vector{name}, whole passage"] = _summary(setting, whole, len(cut) * vector)
        if words == WORDS:
            sentence, whole = _ask_bm25(cut, setting.questions)
            rows["bm25"] = _summary(setting, sentence, None) | {"words": words}
            rows["bm25, whole passage"] = _summary(setting, whole, None)
    return rows


def _ask_nuggets(model: NuggetModel, setting: Setting) -> tuple[list[Shown], list[Shown], int]:
    """Return the first passage and all passages of the best document of each question, and the bytes of all vectors."""
    with tempfile.TemporaryDirectory() as folder, NuggetIndex.create(Path(folder) / "index", model) as index:
        index.add(map(str, range(len(setting.documents))), setting.documents, show_progress_bar=True)
        first, every = [], []
        for question in setting.questions:
            (hit,) = index.search(question.query, k=1, full=False)
            texts = [passage.text or "" for passage in hit.passages]
            first.append(Shown(int(hit.id), texts[0]))
            every.append(Shown(int(hit.id), "\n".join(texts)))
        return first, every, index.info()["vector_bytes"]


def _ask_vectors(
    embed: Embed, cut: Sequence[tuple[int, str]], questions: Sequence[Question]
) -> tuple[list[Shown], list[Shown]]:
    """Return the best sentence of the best passage, and that passage, by one vector for each."""
    vectors, queries = embed([text for _, text in cut]), embed([question.query for question in questions])
    sentence, whole = [], []
    for query in queries:
        document, text = cut[int((vectors @ query).argmax())]
        sentences = _sentences(text)
        sentence.append(Shown(document, sentences[int((embed(sentences) @ query).argmax())]))
        whole.append(Shown(document, text))
    return sentence, whole


def _ask_bm25(
    cut: Sequence[tuple[int, str]], questions: Sequence[Question]
) -> tuple[list[Shown], list[Shown]]:
    """Return the best sentence of the best passage, and that passage, by BM25."""
    engine = BM25([text for _, text in cut])
    sentence, whole = [], []
    for question in questions:
        document, text = cut[int(engine.nearest([question.query], 1)[0, 0])]
        sentences = _sentences(text)
        sentence.append(Shown(document, sentences[int(BM25(sentences).nearest([question.query], 1)[0, 0])]))
        whole.append(Shown(document, text))
    return sentence, whole


def _sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in whole_sentences(text)] or [text]


def _cut_words(text: str, words: int) -> list[str]:
    """Return the text in parts of so many words."""
    starts = [found.start() for found in re.finditer(r"\S+", text)][::words]
    return [text[start:end].strip() for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _holds(text: str, answers: Sequence[str]) -> bool:
    """Return whether a text contains one of the answers as whole words, in any case and with any white space."""
    flat = " ".join(text.casefold().split())
    wanted = (" ".join(answer.casefold().split()) for answer in answers)
    return any(answer and re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", flat) for answer in wanted)


def _summary(setting: Setting, shown: Sequence[Shown], size: int | None) -> dict[str, Any]:
    pairs = list(zip(setting.questions, shown, strict=True))
    answered = [
        question.document == item.document and _holds(item.text, question.answers) for question, item in pairs
    ]
    return {
        "answered": round(100 * float(np.mean(answered)), 2),
        "right_document": round(100 * float(np.mean([q.document == item.document for q, item in pairs])), 2),
        "characters": round(float(np.mean([len(item.text) for item in shown])), 1),
        "bytes": size,
    }
