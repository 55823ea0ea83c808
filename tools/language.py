"""The tables and the figure of the language models, from docs/results/lm; `python -m tools.tables` puts them in place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from textnuggets.evaluate.figures import BLUE, GREY, RED, save_figure
from textnuggets.lm.perplexity import compare, show
from textnuggets.model.selection import nugget_count

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "lm"
PARTS = ("valid", "test")
OVERLAPPING = (
    "test-stride-64",
)  # every token but an article's first has 64 tokens of its segment before it, at least
PLAIN = "no-history"
# Language models, by what they keep of a segment of the past.
KEPT = {
    PLAIN: "nothing",
    "nuggets-0.1": "nuggets, r = 0.1",
    "nuggets-0.05": "nuggets, r = 0.05",
    "tsdae": "one vector (TSDAE)",
    "compressive": "every 16 states as one",
    "full-attention": "every token",
}
POOLED = 16

Rows = dict[int, dict[str, Any]]  # by history


def read(name: str, part: str) -> Rows:
    """What `textnuggets lm evaluate --out` found of a model."""
    found = json.loads((RESULTS / name / part / "perplexity.json").read_text(encoding="utf-8"))
    return {row["history"]: row for row in found["results"]}


def measured(parts: Sequence[str] = PARTS) -> dict[str, dict[str, Rows]]:
    """By model and part, of those that are there."""
    return {
        name: {part: read(name, part) for part in parts}
        for name in KEPT
        if all((RESULTS / name / part).is_dir() for part in parts)
    }


def perplexity_table(parts: Sequence[str] = PARTS) -> str:
    """Perplexity by what is kept of the past and how far back, against a model without any."""
    models = measured(parts)
    plain = {part: models[PLAIN][part][0] for part in parts}
    heads = " | ".join(f"{part.replace('-', ', ', 1).replace('-', ' ')} | to no history" for part in parts)
    rows = [
        f"| kept of a segment | h | vectors of the past | {heads} |",
        f"|---|---|---|{'---|---|' * len(parts)}",
    ]
    for name, found in models.items():
        for place, (history, row) in enumerate(found[parts[0]].items()):
            cells = ["" if place else KEPT[name], str(history), str(vectors_read(name, row))]
            for part in parts:
                own = found[part][history]
                change = compare(np.array(own["by_article"]), np.array(plain[part]["by_article"]))
                cells += [show(own["word_perplexity"], 1), f"x {show(change, 3)}"]
            rows.append(f"| {' | '.join(cells)} |")
    told = "; ".join(
        f"{part.split('-')[0]} {row['articles']} articles, {row['words']:,} words"
        for part, row in plain.items()
    )
    return "\n".join([*rows, "", f"Perplexity by word; in brackets 95% intervals over articles: {told}."])


def vectors_read(name: str, row: dict[str, Any]) -> int:
    """How many vectors of the past are read besides the segment itself."""
    if name == "tsdae":
        each = 1
    elif row["memory"] == "nuggets":
        each = int(nugget_count(row["segment"] + 1, row["ratio"]))  # with the token that closes a text
    else:
        each = {"tokens": row["segment"], "compressive": row["segment"] // POOLED}[row["memory"]]
    return each * int(row["history"])


def kinds_table(name: str = "nuggets-0.1", part: str = "test") -> str:
    """What history gains over the model without any, by where a word was said last."""
    plain, found = read(PLAIN, part)[0], read(name, part)
    histories = [history for history in found if history]
    rows = [
        f"| | last said | words | nats a word without history | {' | '.join(f'h = {h}' for h in histories)} |",
        f"|---|---|---|---|{'---|' * len(histories)}",
    ]
    for label, kinds in plain["by_kind"].items():
        for place, (kind, (total, count)) in enumerate(kinds.items()):
            losses = [(total - found[h]["by_kind"][label][kind][0]) / count for h in histories]
            cells = ["" if place else label, kind, f"{count:,.0f}", f"{-total / count:.2f}"]
            rows.append(f"| {' | '.join([*cells, *(f'{loss:+.2f}' for loss in losses)])} |")
    return "\n".join([*rows, "", f"{KEPT[name]}, WikiText-103 {part}; below zero is better than without."])


def draw_history(part: str = "test") -> Figure:
    """Perplexity by word against how many segments are read."""
    models = measured()
    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.add_subplot()
    styles = {"nuggets-0.1": (BLUE, "o-"), "nuggets-0.05": (BLUE, "o:"), "tsdae": (RED, "s-")}
    for name, found in models.items():
        points = [(h, row["word_perplexity"]["value"]) for h, row in found[part].items()]
        if name == PLAIN:
            axes.axhline(points[0][1], color=GREY, linestyle="--", linewidth=1, label="no history")
            continue
        colour, style = styles.get(name, (GREY, "^" if name == "compressive" else "D"))
        axes.plot(*zip(*points, strict=True), style, color=colour, markersize=4, label=KEPT[name])
    axes.set(
        xlabel="segments of 128 tokens before", ylabel=f"perplexity by word, {part}", xticks=[0, 1, 2, 4, 8]
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return figure


def save_figures() -> None:
    """Draw what there is."""
    save_figure(draw_history(), RESULTS / "history")
