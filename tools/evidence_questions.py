"""Make the questions of the evidence benchmark from questions with the sentence that answers each.

    python -m tools.evidence_questions questions/train.jsonl.gz OUT.jsonl [--source squad] [--count 500] [--seed 0]

Adjacent records of that source are about the same article, so their sentences, in order, make passages. The answer is the
sentence of the question. The output is for `python -m bench ... --only evidence --questions OUT.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from textnuggets.io.corpora import read_records
from textnuggets.io.files import replacing

SENTENCES = 12  # of a passage
WORDS = (6, 60)  # least and most words of a sentence


def make_questions(source: str, kind: str) -> list[dict[str, object]]:
    """Return every question with its passage and the sentence in it that answers."""
    asked: dict[str, list[str]] = {}
    for record in read_records([source]):
        if record.fields.get("source") == kind:
            sentence = " ".join(record.fields["positive"].split())
            if WORDS[0] <= len(sentence.split()) <= WORDS[1]:
                # The texts are lower-cased; sentences are found by their capital letters.
                asked.setdefault(sentence[0].upper() + sentence[1:], []).append(record.fields["query"])
    sentences = list(asked)
    rows: list[dict[str, object]] = []
    for start in range(0, len(sentences), SENTENCES):
        part = sentences[start : start + SENTENCES]
        rows += [
            {"query": query, "positive": " ".join(part), "answers": [sentence]}
            for sentence in part
            for query in asked[sentence]
        ]
    return rows


def main() -> None:
    """Write a random sample of the questions."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.evidence_questions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("questions")
    parser.add_argument("out", type=Path)
    parser.add_argument("--source", default="squad")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rows = make_questions(given.questions, given.source)
    sample = random.Random(given.seed).sample(rows, min(given.count, len(rows)))
    with replacing(given.out) as temporary:
        temporary.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in sample), "utf-8")


if __name__ == "__main__":
    main()
