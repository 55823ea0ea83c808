"""Make training pairs for search from running text: a sentence as the query, its passage without it as the document.

    python -m tools.sentence_pairs OUT.jsonl.gz --texts wikipedia/train.jsonl.gz [--count 15000] [--seed 0]

In half of the pairs the sentence stays in its passage, because real queries often share words with their document. The pairs
have the licence of the corpora.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

from textnuggets.io.corpora import read_passages
from textnuggets.io.files import replacing

WORDS = (40, 180)  # least and most words of a passage
QUERY = (6, 40)  # least and most words of a query


def passages(sources: list[str]) -> Iterator[list[str]]:
    """Yield adjacent sentences, as many as make a passage."""
    for passage in read_passages(sources):
        sentences: list[str] = []
        for sentence, *_ in passage.rows:
            if sentences and sum(len(s.split()) for s in (*sentences, sentence)) > WORDS[1]:
                yield sentences
                sentences = []
            sentences.append(sentence)
        yield sentences


def make_pair(sentences: list[str], draw: random.Random) -> dict[str, str] | None:
    """Return a pair of a passage; None if it is too short or has no sentence to ask with."""
    fit = [i for i, sentence in enumerate(sentences) if QUERY[0] <= len(sentence.split()) <= QUERY[1]]
    if len(sentences) < 3 or not fit or sum(len(sentence.split()) for sentence in sentences) < WORDS[0]:
        return None
    chosen = draw.choice(fit)
    kept = sentences if draw.random() < 0.5 else sentences[:chosen] + sentences[chosen + 1 :]
    return {"query": sentences[chosen], "positive": " ".join(kept)}


def main() -> None:
    """Write a random sample of the pairs of corpora."""
    parser = argparse.ArgumentParser(prog="python -m tools.sentence_pairs", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--texts", action="append", required=True, help="corpus; can be repeated")
    parser.add_argument("--count", type=int, default=15_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    draw = random.Random(chosen.seed)
    sample: list[dict[str, str]] = []
    pairs = (pair for sentences in passages(chosen.texts) if (pair := make_pair(sentences, draw)))
    for number, pair in enumerate(pairs):  # reservoir sampling
        if len(sample) < chosen.count:
            sample.append(pair)
        elif (slot := draw.randrange(number + 1)) < chosen.count:
            sample[slot] = pair
    with replacing(chosen.out) as temporary, gzip.open(temporary, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(pair, ensure_ascii=False) + "\n" for pair in sample)


if __name__ == "__main__":
    main()
