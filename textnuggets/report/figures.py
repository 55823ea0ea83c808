"""Figures like the paper's, drawn from results files as PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from textnuggets.errors import MissingExtraError
from textnuggets.evaluate.preferences import bare_piece
from textnuggets.io.files import replacing

try:
    import matplotlib as mpl

    mpl.use("Agg")  # draw to files, without a display
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingExtraError("matplotlib", "evaluate", "a figure") from error

BLUE, RED, GREY = "#2f5d8a", "#b5483a", "#9aa0a6"
CHOSEN = (3, 6, 9)  # the nuggets shown in the paper


def _figure(width: float = 6.0, height: float = 3.6) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def draw_learning(metrics: Sequence[dict[str, Any]]) -> Figure:
    """Draw dev BLEU and dev loss against the tokens seen, one line per ratio.

    Args:
        metrics: Records of a run's metrics.jsonl.
    """
    tokens, seen = 0.0, {}
    for record in metrics:
        tokens += record.get("tokens", 0)
        seen[record["step"]] = tokens / 1e6
    evaluations = [record for record in metrics if "eval_loss" in record]
    names = sorted({name for record in evaluations for name in record})
    kinds = {"eval_bleu_r": "greedy BLEU", "eval_loss_r": "loss, nats per token"}
    kinds = {key: label for key, label in kinds.items() if any(name.startswith(key) for name in names)}
    figure = Figure(figsize=(6.0, 2.5 * max(1, len(kinds))), layout="constrained")
    for number, (key, label) in enumerate(kinds.items()):
        axes = figure.add_subplot(len(kinds), 1, number + 1)
        for name in (name for name in names if name.startswith(key)):
            points = [(seen[record["step"]], record[name]) for record in evaluations if name in record]
            axes.plot(*zip(*points, strict=True), marker=".", label=f"r = {name.removeprefix(key)}")
        axes.set(ylabel=f"dev {label}", xlabel="million tokens seen")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    return figure


def draw_reconstruction(results: Sequence[tuple[str, dict[str, Any]]]) -> Figure:
    """Draw BLEU against the ratio, one curve per named result."""
    figure, axes = _figure()
    for name, found in results:
        points = [(item["ratio"], item["bleu"]) for item in found["results"]]
        axes.plot(*zip(*sorted(points), strict=True), marker="o", markersize=4, label=name)
    axes.set(xlabel="ratio r", ylabel="BLEU", ylim=(0, 102), xlim=(0, None))
    axes.grid(axis="y", color="#e6e6e6")
    if len(results) > 3:
        axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    else:
        axes.legend(frameon=False)
    return figure


def draw_fidelity(results: dict[str, Any]) -> Figure:
    """Draw mean fidelity against vectors per token, for one ratio for all documents and for a ratio per document."""
    figure, axes = _figure()
    tokens, each = results["tokens"], results["each"]
    fixed = [(item["vectors"] / tokens, item["fidelity"]) for item in results["fixed"]]
    axes.plot(*zip(*fixed, strict=True), marker="o", markersize=4, color=GREY, label="one ratio for all")
    axes.plot(each["vectors"] / tokens, each["fidelity"], "*", markersize=12, color=RED,
              label=f"a ratio per document, for {results['settings']['fidelity']:g}")  # fmt: skip
    axes.set(xlabel="vectors per token", ylabel="mean fidelity", ylim=(0, 1.02), xlim=(0, None))
    axes.grid(axis="y", color="#e6e6e6")
    axes.legend(frameon=False)
    return figure


def draw_similarity(results: dict[str, Any]) -> Figure:
    """Draw the first measure of every system against its vectors and bytes per document; BM25 is a horizontal line.

    Results of early versions have no bytes.
    """
    rows = results["results"]
    sizes = ["vectors", "bytes"] if any("bytes" in row for row in rows) else ["vectors"]
    figure = Figure(figsize=(3.0 + 3.0 * len(sizes), 4.2), layout="constrained")
    name = next(iter(rows[0]["measures"]))
    for number, size in enumerate(sizes):
        axes = figure.add_subplot(1, len(sizes), number + 1)
        axes.spines[["top", "right"]].set_visible(False)
        for row in rows:
            found = row["measures"][name]
            if row["vectors"] is None:
                axes.axhline(found["mean"], color=GREY, linestyle="--", linewidth=1, label=row["system"])
            elif row.get(size) is not None:
                error = [[found["mean"] - found["low"]], [found["high"] - found["mean"]]]
                axes.errorbar(
                    row[size], found["mean"], error, fmt="o", markersize=4, capsize=2, label=row["system"]
                )
        axes.set(xlabel=f"{size} per document", ylabel="" if number else f"{name}, %", xscale="log")
        axes.tick_params(
            axis="x", which="minor", labelsize=6, labelrotation=45
        )  # shown if they span few decades
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def draw_preferences(results: dict[str, Any], count: int = 6) -> Figure:
    """Draw the share of the most frequent nuggets among the nuggets and in the text."""
    figure, axes = _figure()
    types = results["types"][:count]
    places = range(len(types))
    axes.bar(
        [i - 0.2 for i in places],
        [100 * t["share_of_nuggets"] for t in types],
        0.4,
        color=BLUE,
        label="nuggets",
    )
    axes.bar(
        [i + 0.2 for i in places], [100 * t["share_in_text"] for t in types], 0.4, color=GREY, label="text"
    )
    axes.set_xticks(list(places), [bare_piece(t["token"]) or t["token"] for t in types])
    axes.set(ylabel="share of tokens, %")
    axes.legend(frameon=False)
    return figure


def draw_gain_by_order(found: dict[str, Any], orders: Sequence[int] = CHOSEN) -> Figure:
    """Draw the probability gain of single nuggets by token index, with the distribution of their positions."""
    shown = [item for item in found["by_order"] if item["nugget"] in orders]
    figure = Figure(figsize=(6.0, 1.7 * max(1, len(shown))), layout="constrained")
    for number, item in enumerate(shown):
        axes = figure.add_subplot(len(shown), 1, number + 1)
        axes.plot([_nan(value) for value in item["gain"]], color=BLUE)
        axes.set_ylabel(f"gain, nugget {item['nugget']}")
        twin = axes.twinx()
        total = max(1, sum(item["positions"]))
        twin.fill_between(
            range(len(item["positions"])), [n / total for n in item["positions"]], color=RED, alpha=0.25
        )
        twin.set_ylabel("its position")
        twin.set_yticks([])
        axes.spines[["top"]].set_visible(False)
        twin.spines[["top", "right"]].set_visible(False)
    if shown:
        axes.set_xlabel("token index")
    return figure


def draw_gain_around(results: dict[str, Any]) -> Figure:
    """Draw the probability gain by distance from the nugget, one curve per document length."""
    figure, axes = _figure()
    for found in results["results"]:
        gain = [_nan(value) for value in found["around"]["gain"]]
        axes.plot(found["around"]["offsets"], gain, label=f"up to {found['max_tokens']} tokens")
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set(xlabel="tokens from the nugget", ylabel="probability gain")
    axes.legend(frameon=False)
    return figure


def _nan(value: float | None) -> float:
    return float("nan") if value is None else value


def save_figure(figure: Figure, path: Path) -> list[Path]:
    """Write a figure to `path` with the suffixes .png and .svg, and return both paths."""
    written = []
    with mpl.rc_context({"svg.hashsalt": "textnuggets", "svg.fonttype": "none"}):  # reproducible files
        for ending in ("png", "svg"):
            target = path.with_suffix(f".{ending}")
            with replacing(target) as temporary:
                metadata = {"Date": None} if ending == "svg" else {}
                figure.savefig(temporary, format=ending, dpi=150, metadata=metadata)
            written.append(target)
    return written
