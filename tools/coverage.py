"""python -m tools.coverage LABEL=CORPUS[:LANGUAGE] ... --out FILE: measure how many words tokenizers split.

Documents of 300 characters are drawn from each corpus; with a LANGUAGE, from that side of aligned pairs. The file holds, for
each shipped tokenizer, the median share of split words and the share of documents that `encode` would warn about.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from statistics import median

from textnuggets import load
from textnuggets.evaluate.provenance import describe_source, software, write_results
from textnuggets.io.corpora import read_passages
from textnuggets.model.coverage import INSIDE, START, _is_foreign, vocabulary_of

CHARACTERS, DOCUMENTS = 300, 400


def draw(corpus: str, language: str | None, seed: int) -> list[str]:
    """Return documents of adjacent sentences of a corpus."""
    documents: list[str] = []
    for passage in read_passages([corpus], ["en"] if language is None else ["en", language]):
        text = ""
        for row in passage.rows:
            text += row[-1] + " "
            if len(text) >= CHARACTERS:
                documents.append(text)
                text = ""
        if len(documents) >= 20 * DOCUMENTS:
            break
    return random.Random(seed).sample(documents, min(DOCUMENTS, len(documents)))


def measure(name: str, documents: list[str]) -> dict[str, float]:
    """Return the median share of split words, and the share of documents that would give a warning."""
    tokenizer = load(name).tokenizer
    kinds = vocabulary_of(tokenizer).kinds
    shares, warned = [], 0
    for text in documents:
        row = kinds[tokenizer(text, verbose=False).input_ids]
        words, split = int((row == START).sum()), int(((row[:-1] == START) & (row[1:] == INSIDE)).sum())
        shares.append(split / max(1, words))
        warned += _is_foreign(split, words)
    return {"split": median(shares), "most": max(shares), "warned": warned / len(documents)}


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpora", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rows = []
    for item in given.corpora:
        label, _, source = item.partition("=")
        corpus, _, language = source.partition(":")
        documents = draw(corpus, language or None, given.seed)
        found = {name: measure(name, documents) for name in ("search", "reconstruct")}
        rows.append({"text": label, "documents": len(documents), "data": describe_source(corpus), **found})
    settings = {"characters": CHARACTERS, "seed": given.seed}
    write_results(given.out, {"question": "coverage", "settings": settings, **software(), "results": rows})


if __name__ == "__main__":
    main()
