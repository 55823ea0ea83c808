"""Tables of the model `reconstruct`, from docs/results/reconstruct; `python -m tools.tables` writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "reconstruct"
# Kinds of text that reconstruction is measured on, and their labels.
KINDS = {
    "one_sentence": "one sentence",
    "novels": "novels",
    "other_case": "capitals, title case, lower case",
    "curly": "curly quotes and dashes",
    "bullets": "lists",
    "table": "tables with `|`",
    "code": "code and identifiers",
    "address": "URLs, mail addresses, paths",
    "figures": "figures",
}


def read(name: str) -> dict[str, Any]:
    """Read the results of `textnuggets evaluate reconstruction`."""
    found: dict[str, Any] = json.loads((RESULTS / name / "reconstruction.json").read_text(encoding="utf-8"))
    return found


def by_ratio(found: dict[str, Any]) -> dict[float, dict[str, Any]]:
    """Return the rows of results by ratio."""
    return {row["ratio"]: row for row in found["results"]}


def quality_table() -> str:
    """Return the reconstruction quality of `reconstruct` on dev and test texts."""
    found = {part: read(part) for part in ("dev", "test")}
    dev_rows, test_rows = by_ratio(found["dev"]), by_ratio(found["test"])
    rows = [
        "| ratio | BLEU, dev | BLEU, test | word for word | numbers | capitalized words |",
        "|---|---|---|---|---|---|",
    ]
    for ratio, dev in sorted(dev_rows.items()):
        bleu = [_with_interval(row) for row in (dev, test_rows.get(ratio)) if row is not None]
        rows.append(
            f"| {ratio:g} | {' | '.join([*bleu, ''][:2])} | {dev['exact']:.0%} | {dev['numbers']:.1%} | "
            f"{dev['capitalized']:.1%} |"
        )
    counts = {part: results["results"][0]["documents"] for part, results in found.items()}
    return "\n".join(
        [
            *rows,
            "",
            f"Wikipedia text it was not trained on, documents of up to {found['dev']['results'][0]['max_tokens']} tokens "
            f"({counts['dev']} dev, {counts['test']} test), {found['dev']['settings']['beams']} beams. In brackets 95% intervals; "
            "shares are of dev documents, numbers and words: [dev](results/reconstruct/dev/reconstruction.json), "
            "[test](results/reconstruct/test/reconstruction.json).",
        ]
    )


def kinds_table() -> str:
    """Return the reconstruction quality of `reconstruct` on other kinds of text."""
    rows = [
        "| kind of text | BLEU, r = 0.1 | BLEU, r = 0.25 | word for word, r = 0.25 | numbers, r = 0.25 |",
        "|---|---|---|---|---|",
    ]
    for name, label in KINDS.items():
        few, many = (by_ratio(read(f"kinds/{name}"))[ratio] for ratio in (0.1, 0.25))
        numbers = "" if many["numbers"] is None else f"{many['numbers']:.0%}"
        rows.append(f"| {label} | {few['bleu']:.1f} | {many['bleu']:.1f} | {many['exact']:.0%} | {numbers} |")
    return "\n".join(
        [*rows, "", f"{many['documents']} texts of each kind, made of dev texts by `tools.varied_texts`."]
    )


def _with_interval(row: dict[str, Any]) -> str:
    low, high = row["bleu_interval"]
    return f"{row['bleu']:.1f} ({low:.1f} to {high:.1f})"
