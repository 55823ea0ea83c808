"""Generate training texts of kinds that encyclopedias and novels lack.

    python -m tools.varied_texts OUT.jsonl.gz --texts wikipedia/train.jsonl.gz --texts novels/train.jsonl.gz \
        --texts bitext/mdn.en-fr.jsonl.gz [--count 120000] [--seed 0]

Short texts, other letter cases, curly quotes, lists, tables with `|`, records, identifiers, URLs and figures, composed of
words and sentences of the given corpora. Trained on them together with ordinary text, `reconstruct` preserves such
texts. They have the licence of the corpora.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from textnuggets.io.corpora import read_passages
from textnuggets.io.files import replacing

RESERVOIR = 60_000  # number of sentences kept to sample from


@dataclass
class Material:
    """Sentences and words to compose texts from."""

    random: random.Random
    sentences: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """Return a random sentence."""
        return self.random.choice(self.sentences)

    def words(self, least: int, most: int) -> list[str]:
        """Return some adjacent words of a sentence, without punctuation."""
        while True:
            words = re.findall(r"[A-Za-z]+", self.sentence())
            if len(words) >= least:
                count = self.random.randint(least, min(most, len(words)))
                start = self.random.randint(0, len(words) - count)
                return words[start : start + count]

    def number(self) -> str:
        """Return a number: a count, an amount, a year, a percentage or a decimal."""
        pick = self.random
        return pick.choice(
            [
                str(pick.randint(0, 99)),
                str(pick.randint(1000, 2030)),
                f"{pick.randint(1, 10 ** pick.randint(3, 9)):,}",
                f"{pick.uniform(0, 100):.{pick.randint(1, 4)}f}",
                f"{pick.uniform(0, 100):.1f}%",
                f"${pick.randint(1, 10**6):,}.{pick.randint(0, 99):02d}",
                str(pick.randint(10**5, 10**12)),
                f"-{pick.randint(1, 500)}",
            ]
        )

    def identifier(self) -> str:
        """Return an identifier as in source code."""
        words = [word.lower() for word in self.words(1, 4)]
        style = self.random.randrange(5)
        if style == 0:
            return "_".join(words)
        if style == 1:
            return words[0] + "".join(word.capitalize() for word in words[1:])
        if style == 2:
            return "-".join(words)
        if style == 3:
            return "_".join(words).upper()
        return "".join(word.capitalize() for word in words) + self.random.choice(
            ["()", "", "[0]", ".py", "<T>"]
        )


def short(material: Material) -> str:
    """Return a few words, with or without final punctuation."""
    return " ".join(material.words(1, 12)) + material.random.choice(["", "", ".", "?", "!", ":", "..."])


def one_sentence(material: Material) -> str:
    """Return an unchanged sentence."""
    return material.sentence()


def other_case(material: Material) -> str:
    """Return one to three sentences in upper case, lower case or title case."""
    text = " ".join(material.sentence() for _ in range(material.random.randint(1, 3)))
    return material.random.choice([str.upper, str.lower, str.title])(text)


def curly(material: Material) -> str:
    """Return sentences with curly quotes and apostrophes, some of them direct speech."""
    text = " ".join(material.sentence() for _ in range(material.random.randint(1, 4)))
    if '"' not in text and material.random.random() < 0.7:
        text = f'"{text}" said {" ".join(material.words(1, 2))}. "{material.sentence()}"'
    text = re.sub(r'"([^"]*)"', r"“\1”", text).replace("'", "’")
    return re.sub(r"\s’(\w)", r" ‘\1", text).replace("...", "…")


def bullets(material: Material) -> str:
    """Return a bulleted or numbered list on one line."""
    count = material.random.randint(3, 8)
    marks = material.random.choice(
        [["-"] * count, ["*"] * count, ["•"] * count, [f"{i}." for i in range(1, count + 1)]]
    )
    return " ".join(f"{mark} {' '.join(material.words(1, 8))}" for mark in marks)


def table(material: Material) -> str:
    """Return a table in Markdown or with separators, on one line."""
    pick = material.random
    columns = pick.randint(2, 5)
    numeric = [pick.random() < 0.6 for _ in range(columns)]
    rows = [[" ".join(material.words(1, 2)).title() for _ in range(columns)]]
    for _ in range(pick.randint(1, 5)):
        rows.append(
            [material.number() if is_number else " ".join(material.words(1, 3)) for is_number in numeric]
        )
    style = pick.randrange(4)
    if style == 0:
        return ", ".join(";".join(row) for row in rows)
    if style == 1:
        return " ".join(" | ".join(row) for row in rows)
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * columns)
    return " ".join(lines)


def record(material: Material) -> str:
    """Return fields and values, as JSON or as key-value settings."""
    pick = material.random
    fields = {
        material.identifier(): material.number() if pick.random() < 0.5 else " ".join(material.words(1, 4))
        for _ in range(pick.randint(2, 6))
    }
    style = pick.randrange(3)
    if style == 0:
        return json.dumps(fields)
    return (", " if style == 1 else " ").join(
        f"{key}{':' if style == 1 else '='} {value}" for key, value in fields.items()
    )


def code(material: Material) -> str:
    """Return one or two lines that resemble source code."""
    pick = material.random
    name = material.identifier
    lines = [
        f"{name()} = {name()}({name()}, {material.number()})",
        f"if ({name()} == {pick.randint(0, 255)}) {{ return {name()}; }}",
        f'def {name()}(self, {name()}=None): """{" ".join(material.words(2, 7))}."""',
        f"for {name()} in {name()}.{name()}(): {name()} += 1",
        f'<a href="{name()}.html" class="{name()}">{" ".join(material.words(1, 3))}</a>',
        f"$ {name()} --{name()} {name()}/{name()}.txt | grep -v '{name()}' > out_{pick.randint(1, 99)}.log",
        f"Use `{name()}` instead of `{name()}`, see #{pick.randint(1, 9999)}.",
    ]
    return " ".join(pick.sample(lines, pick.randint(1, 2)))


def address(material: Material) -> str:
    """Return a URL, e-mail address, path, date, version or similar, alone or in a sentence."""
    pick = material.random
    host = f"{material.words(1, 1)[0].lower()}{pick.choice(['.com', '.org', '.co.uk', '.io', '.edu'])}"
    places = [
        f"https://www.{host}/{'/'.join(word.lower() for word in material.words(1, 3))}?id={pick.randint(1, 10**6)}",
        f"http://{host}/{'_'.join(material.words(1, 4))}",
        f"{material.words(1, 1)[0].lower()}.{material.words(1, 1)[0].lower()}@{host}",
        f"/usr/lib/{'/'.join(word.lower() for word in material.words(1, 3))}.so.{pick.randint(1, 9)}",
        "C:\\" + "\\".join(material.words(1, 3)) + ".exe",
        f"{pick.randint(1990, 2030)}-{pick.randint(1, 12):02d}-{pick.randint(1, 28):02d} "
        f"{pick.randint(0, 23):02d}:{pick.randint(0, 59):02d}:{pick.randint(0, 59):02d}",
        f"v{pick.randint(0, 20)}.{pick.randint(0, 20)}.{pick.randint(0, 99)}",
        f"+{pick.randint(1, 99)} {pick.randint(100, 999)} {pick.randint(100, 999)}-{pick.randint(1000, 9999)}",
        f"{pick.getrandbits(64):016x}",
    ]
    sentence = material.sentence().rstrip(".")
    return f"{sentence} ({pick.choice(places)})." if pick.random() < 0.6 else pick.choice(places)


def figures(material: Material) -> str:
    """Return sentences with their numbers replaced, or a row of numbers."""
    if material.random.random() < 0.3:
        return " ".join(material.number() for _ in range(material.random.randint(2, 14)))
    text = " ".join(material.sentence() for _ in range(material.random.randint(1, 3)))
    if not re.search(r"\d", text):
        text = f"{text.rstrip('.')}, {material.number()} {' '.join(material.words(1, 3))} in {material.number()}."
    return re.sub(r"\d[\d,.]*\d|\d", lambda _: material.number(), text)


KINDS: dict[Callable[[Material], str], int] = {
    short: 20, one_sentence: 14, other_case: 10, curly: 14, bullets: 6, table: 10, record: 6, code: 8, address: 8, figures: 10,
}  # fmt: skip


def gather(sources: list[str], pick: random.Random) -> Material:
    """Return a random sample of the sentences of corpora."""
    material, seen = Material(pick), 0
    for passage in read_passages(sources, ["en"]):
        for (sentence,) in passage.rows:
            seen += 1
            if len(material.sentences) < RESERVOIR:
                material.sentences.append(sentence)
            elif (index := pick.randrange(seen)) < RESERVOIR:
                material.sentences[index] = sentence
    return material


def main() -> None:
    """Generate the texts and write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--texts", action="append", required=True)
    parser.add_argument("--count", type=int, default=120_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    pick = random.Random(given.seed)
    material = gather(given.texts, pick)
    with replacing(given.out) as temporary, gzip.open(temporary, "wt", encoding="utf-8") as file:
        for kind in pick.choices(list(KINDS), list(KINDS.values()), k=given.count):
            file.write(json.dumps({"text": kind(material), "kind": kind.__name__}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
