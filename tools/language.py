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
STREAMING = ("streaming",)  # test again, by segments that do not overlap
PLAIN = "no-history"
# Language models, by what they keep of a segment of the past.
KEPT = {
    PLAIN: "nothing",
    "nuggets-0.1": "nuggets, r = 0.1",
    "nuggets-0.05": "nuggets, r = 0.05",
    "compressive": "every 16 states as one",
    "full-attention": "every token",
    "tsdae-no-history": "nothing, TSDAE's decoder",
    "tsdae": "one vector (TSDAE)",
}
PLAIN_OF = {"tsdae": "tsdae-no-history", "tsdae-no-history": "tsdae-no-history"}  # of the same decoder
POOLED = 16

Rows = dict[int, dict[str, Any]]  # by history


def read(name: str, part: str) -> Rows:
    """What `textnuggets lm evaluate --out` found of a model."""
    found = json.loads((RESULTS / name / part / "perplexity.json").read_text(encoding="utf-8"))
    return {row["history"]: row for row in found["results"]}


def measured(parts: Sequence[str]) -> dict[str, dict[str, Rows]]:
    """By model and part."""
    return {name: {part: read(name, part) for part in parts} for name in KEPT}


def perplexity_table(parts: Sequence[str] = PARTS) -> str:
    """Perplexity by what is kept of the past and how far back, against the same decoder trained without any."""
    models = measured(parts)
    rows = [
        f"| kept of a segment | h | vectors of the past | {' | '.join(f'{part} | to no history' for part in parts)} |",
        f"|---|---|---|{'---|---|' * len(parts)}",
    ]
    for name, found in models.items():
        histories = sorted({history for part in parts for history in found[part]})
        for place, history in enumerate(histories):
            example = next(found[part][history] for part in parts if history in found[part])
            cells = ["" if place else KEPT[name], str(history), str(vectors_read(name, example))]
            for part in parts:
                own, plain = found[part].get(history), models[PLAIN_OF.get(name, PLAIN)][part][0]
                if own is None:
                    cells += ["", ""]
                    continue
                change = compare(np.array(own["by_article"]), np.array(plain["by_article"]))
                cells += [show(own["word_perplexity"], 1), f"x {show(change, 3)}" if history else ""]
            rows.append(f"| {' | '.join(cells)} |")
    told = "; ".join(
        f"{part} {row['articles']} articles, {row['words']:,} words, a stride of {row['stride']}"
        for part, row in ((part, models[PLAIN][part][0]) for part in parts)
    )
    return "\n".join([*rows, "", f"Perplexity by word; in brackets 95% intervals over articles. {told}."])


def streaming_table() -> str:
    """The same where segments do not overlap, as in streaming and generating."""
    return perplexity_table(STREAMING)


def vectors_read(name: str, row: dict[str, Any]) -> int:
    """How many vectors of the past are read besides the segment itself."""
    if name == "tsdae":
        each = 1
    elif row["memory"] == "nuggets":
        each = int(nugget_count(row["segment"] + 1, row["ratio"]))  # with the token that closes a text
    else:
        each = {"tokens": row["segment"], "compressive": row["segment"] // POOLED}[row["memory"]]
    return each * int(row["history"])


def kinds_table(part: str = "streaming") -> str:
    """What history gains over the same decoder trained without any, by where a word was said last."""
    shown = [
        ("nuggets-0.1", 1),
        *((name, max(read(name, part))) for name in KEPT if "no-history" not in name),
    ]
    rows = [
        f"| | last said | words | without | {' | '.join(f'{KEPT[name]}, h = {h}' for name, h in shown)} |",
        f"|---|---|---|---|{'---|' * len(shown)}",
    ]
    plain = {name: read(PLAIN_OF.get(name, PLAIN), part)[0]["by_kind"] for name, _ in shown}
    found = {(name, h): read(name, part)[h]["by_kind"] for name, h in shown}
    for label, kinds in read(PLAIN, part)[0]["by_kind"].items():
        for place, (kind, (total, count)) in enumerate(kinds.items()):
            gains = [
                (plain[name][label][kind][0] - found[name, h][label][kind][0]) / count for name, h in shown
            ]
            cells = ["" if place else label, kind, f"{count:,.0f}", f"{-total / count:.2f}"]
            rows.append(f"| {' | '.join([*cells, *(f'{gain:+.2f}' for gain in gains)])} |")
    told = "Nats a word without history, and what is added by reading it: below zero is better. Test by segments that do not overlap."
    return "\n".join([*rows, "", told])


def draw_history(part: str = "test") -> Figure:
    """Perplexity by word against how many segments are read."""
    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.add_subplot()
    styles = {
        "nuggets-0.1": (BLUE, "o-"),
        "nuggets-0.05": (BLUE, "o:"),
        "tsdae": (RED, "s-"),
        "compressive": (GREY, "^"),
        "full-attention": (GREY, "D"),
    }
    for name, found in measured([part]).items():
        points = [
            (h, row["word_perplexity"]["value"]) for h, row in found[part].items() if h or name not in styles
        ]
        if name not in styles:
            colour = GREY if name == PLAIN else RED
            axes.axhline(points[0][1], color=colour, linestyle="--", linewidth=1, label=KEPT[name])
            continue
        colour, style = styles[name]
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
