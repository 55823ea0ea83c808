"""Tables and figure of the language models, from docs/results/lm; `python -m tools.tables` writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from textnuggets.evaluate.perplexity import compare, show
from textnuggets.model.budget import nugget_count
from textnuggets.report.figures import BLUE, GREY, RED, save_figure

RESULTS = Path(__file__).parent.parent / "docs" / "results" / "lm"
PARTS = ("valid", "test")
STREAMING = ("streaming",)  # the test set with segments that do not overlap
PLAIN = "no-history"
# Language models and what they keep of a past segment.
KEPT = {
    PLAIN: "nothing",
    "nuggets-0.1": "nuggets, r = 0.1",
    "nuggets-0.05": "nuggets, r = 0.05",
    "compressive": "every 16 states as one",
    "full-attention": "every token",
    "tsdae-no-history": "nothing, TSDAE's decoder",
    "tsdae": "one vector (TSDAE)",
}
LONGER = {f"longer/{name}": KEPT[name] for name in (PLAIN, "nuggets-0.1", "tsdae")}
STEPS = (240, 1300)  # training steps of the models in KEPT and in LONGER
POOLED = 16

Rows = dict[int, dict[str, Any]]  # keys: history


def read(name: str, part: str) -> Rows:
    """Read the results of `textnuggets lm evaluate --out` for a model, by history."""
    found = json.loads((RESULTS / name / part / "perplexity.json").read_text(encoding="utf-8"))
    return {row["history"]: row for row in found["results"]}


def plain_of(name: str) -> str:
    """Return the model without history to compare a model with: the same decoder, or equally long training."""
    if name in LONGER:
        return f"longer/{PLAIN}"
    return "tsdae-no-history" if name.startswith("tsdae") else PLAIN


def measured(parts: Sequence[str], names: Iterable[str] = KEPT) -> dict[str, dict[str, Rows]]:
    """Read the results of models, by model and part."""
    return {name: {part: read(name, part) for part in parts} for name in names}


def perplexity_table(parts: Sequence[str] = PARTS, names: Mapping[str, str] = KEPT) -> str:
    """Return perplexity by memory and history, compared with a decoder trained without history."""
    models = measured(parts, names)
    rows = [
        f"| kept of a segment | h | vectors of the past | {' | '.join(f'{part} | to no history' for part in parts)} |",
        f"|---|---|---|{'---|---|' * len(parts)}",
    ]
    for name, found in models.items():
        histories = sorted({history for part in parts for history in found[part]})
        for place, history in enumerate(histories):
            example = next(found[part][history] for part in parts if history in found[part])
            cells = ["" if place else names[name], str(history), str(vectors_read(name, example))]
            for part in parts:
                own, plain = found[part].get(history), models[plain_of(name)][part][0]
                if own is None:
                    cells += ["", ""]
                    continue
                change = compare(np.array(own["by_article"]), np.array(plain["by_article"]))
                cells += [show(own["word_perplexity"], 1), f"x {show(change, 3)}" if history else ""]
            rows.append(f"| {' | '.join(cells)} |")
    counts = "; ".join(
        f"{part} {row['articles']} articles, {row['words']:,} words, a stride of {row['stride']}"
        for part, row in ((part, next(iter(models.values()))[part][0]) for part in parts)
    )
    return "\n".join([*rows, "", f"Perplexity by word; in brackets 95% intervals over articles. {counts}."])


def streaming_table() -> str:
    """Return the same for segments that do not overlap, as in streaming and generation."""
    return perplexity_table(STREAMING)


def longer_table() -> str:
    """Return the models that were trained longer on all parts, and nuggets compared with one vector."""
    parts = (*PARTS, *STREAMING)
    ratios = []
    for part in parts:
        nuggets, one = (read(f"longer/{name}", part) for name in ("nuggets-0.1", "tsdae"))
        found = (
            show(compare(np.array(nuggets[h]["by_article"]), np.array(one[h]["by_article"])), 3) for h in one
        )
        ratios.append(
            f"{part} {', '.join(f'h = {h} x {ratio}' for h, ratio in zip(one, found, strict=True))}"
        )
    return f"{perplexity_table(parts, LONGER)}\n\nNuggets to TSDAE, article by article: {'; '.join(ratios)}."


def vectors_read(name: str, row: dict[str, Any]) -> int:
    """Return the number of vectors of the past that are read in addition to the segment."""
    if name.endswith("tsdae"):
        each = 1
    elif row["memory"] == "nuggets":
        each = int(nugget_count(row["segment"] + 1, row["ratio"]))  # + 1 for the end token
    else:
        each = {"tokens": row["segment"], "compressive": row["segment"] // POOLED}[row["memory"]]
    return each * int(row["history"])


def kinds_table(names: Mapping[str, str] = KEPT, part: str = "streaming") -> str:
    """Return the gain of history over a decoder trained without it, by where a word last occurred."""
    shown = [
        (next(name for name in names if name.endswith("nuggets-0.1")), 1),
        *((name, max(read(name, part))) for name in names if not name.endswith(PLAIN)),
    ]
    rows = [
        f"| | last occurrence | words | without | {' | '.join(f'{names[name]}, h = {h}' for name, h in shown)} |",
        f"|---|---|---|---|{'---|' * len(shown)}",
    ]
    plain = {name: read(plain_of(name), part)[0]["by_kind"] for name, _ in shown}
    found = {(name, h): read(name, part)[h]["by_kind"] for name, h in shown}
    for label, kinds in read(next(iter(names)), part)[0]["by_kind"].items():
        for place, (kind, (total, count)) in enumerate(kinds.items()):
            gains = [
                (plain[name][label][kind][0] - found[name, h][label][kind][0]) / count for name, h in shown
            ]
            cells = ["" if place else label, kind, f"{count:,.0f}", f"{-total / count:.2f}"]
            rows.append(f"| {' | '.join([*cells, *(f'{gain:+.2f}' for gain in gains)])} |")
    note = (
        "Nats per word without history, and the change with history; negative is better. Test set with segments that do not "
        "overlap."
    )
    return "\n".join([*rows, "", note])


def longer_kinds_table() -> str:
    """Return the same for the models that were trained longer."""
    return kinds_table(LONGER)


def draw_history(part: str = "test") -> Figure:
    """Draw perplexity per word against the number of past segments, after 240 and after 1,300 steps."""
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    styles = {
        "nuggets-0.1": (BLUE, "o-"),
        "nuggets-0.05": (BLUE, "o:"),
        "tsdae": (RED, "s-"),
        "compressive": (GREY, "^"),
        "full-attention": (GREY, "D"),
    }
    panels: list[Any] = list(figure.subplots(1, 2, sharey=True))
    for axes, names, steps in zip(panels, (KEPT, LONGER), STEPS, strict=True):
        for name, found in measured([part], names).items():
            kind = name.rpartition("/")[2]
            rows = {h: row["word_perplexity"]["value"] for h, row in found[part].items()}
            if kind not in styles:
                colour = GREY if kind == PLAIN else RED
                axes.axhline(rows[0], color=colour, linestyle="--", linewidth=1, label=names[name])
                continue
            colour, style = styles[kind]
            points = [(h, value) for h, value in rows.items() if h]
            axes.plot(*zip(*points, strict=True), style, color=colour, markersize=4, label=names[name])
        axes.set(xlabel="segments of 128 tokens before", xticks=[0, 1, 2, 4, 8], title=f"{steps:,} steps")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    panels[0].set(ylabel=f"perplexity by word, {part}")
    return figure


def save_figures() -> None:
    """Write the figure to docs/results/lm."""
    save_figure(draw_history(), RESULTS / "history")
