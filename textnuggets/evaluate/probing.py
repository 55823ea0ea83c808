"""Probability gain of exposing a single nugget (section 5.3 of the paper).

g_i^j = p(y_i | y_<i, z_j) - p(y_i | y_<i), teacher-forced, with one nugget z_j exposed at a time. The baseline is decoding
without cross-attention.

Positions are in the target: for an autoencoder the nugget's own token; for a translation model the token at the same
relative position as the nugget in the source.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from textnuggets.analysis.attribution import probability_gain
from textnuggets.data.packed import PackedCorpus
from textnuggets.errors import BackboneError
from textnuggets.evaluate.provenance import provenance
from textnuggets.evaluate.sample import Sample
from textnuggets.evaluate.stats import Z
from textnuggets.io.progress import Progress
from textnuggets.model.modeling import NuggetModel

SHOWN = 13  # curves are stored for this many first nuggets of a document
REACH = 64  # tokens on either side of a nugget in the centred curve


def evaluate_probing(
    model: NuggetModel,
    sample: Sample,
    ratio: float | None = None,
    lengths: Sequence[int] = (128,),
) -> dict[str, Any]:
    """Measure the mean probability gain by token index for the first nuggets, and by distance from the nugget.

    Args:
        model: Nugget model with a decoder.
        sample: Documents to measure.
        ratio: Compression ratio; default: the model's own.
        lengths: Maximum numbers of tokens per document.
    """
    if not model.can_decode:
        raise BackboneError(f"a {model.adapter.config.model_type} backbone has no decoder to probe.")
    ratio = model.config.ratio if ratio is None else ratio
    found = []
    with Progress("probing", total=len(lengths) * sample.documents) as progress:
        for length in lengths:
            # Only documents that nearly fill the length, so that token indices are comparable between them.
            corpus, rows = sample.draw(model, length, min_tokens=length * 3 // 4)
            found.append(_probe(model, corpus, rows, ratio, length, progress))
    return {
        "question": "probing",
        "settings": {
            "ratio": ratio,
            "baseline": "decoding without cross-attention",
            "languages": list(sample.languages),
        },
        **provenance(model, sample),
        "results": found,
    }


def _probe(
    model: NuggetModel,
    corpus: PackedCorpus,
    rows: Sequence[int],
    ratio: float,
    length: int,
    progress: Progress,
) -> dict[str, Any]:
    """Return the curves for documents of one length."""
    by_order = np.zeros((2, SHOWN, length))  # sums of g and their counts
    places = np.zeros((SHOWN, length), dtype=np.int64)  # histogram of nugget positions
    around = np.zeros((2, 2 * REACH + 1))
    sides = np.zeros((len(rows), 2, 2))  # by document: sums of g before and after nuggets, and their counts
    nuggets = 0
    with model.evaluating(), torch.no_grad():
        for number, row in enumerate(rows):
            example = corpus[row]
            ids = torch.from_numpy(example.input_ids.astype(np.int64)).to(model.device)
            labels = torch.from_numpy(example.labels.astype(np.int64)).to(model.device)
            gains, positions = probability_gain(model, ids, labels, ratio)
            nuggets += len(positions)
            on_target = positions * len(labels) // len(ids)
            near = np.zeros_like(around)
            _add(gains.cpu().numpy(), on_target.cpu().numpy(), by_order, places, near)
            around += near
            sides[number] = _by_side(near, near_tokens(ratio))
            progress.add(1)
    return {
        "max_tokens": length,
        "documents": len(rows),
        "nuggets": nuggets,
        "by_order": [
            {
                "nugget": order + 1,
                "documents": int(places[order].sum()),
                "gain": _means(by_order[:, order]),
                "positions": places[order].tolist(),
            }
            for order in range(SHOWN)
            if places[order].sum()
        ],
        "around": {"offsets": list(range(-REACH, REACH + 1)), "gain": _means(around)},
        "sides": asdict(Sides.of(sides)),
    }


def _add(
    gains: np.ndarray, positions: np.ndarray, by_order: np.ndarray, places: np.ndarray, around: np.ndarray
) -> None:
    """Add the gains `(k, targets)` of one document to the sums in place."""
    count = gains.shape[1]
    for order, (gain, position) in enumerate(zip(gains, positions, strict=True)):
        if order < SHOWN:
            by_order[0, order, :count] += gain
            by_order[1, order, :count] += 1
            places[order, position] += 1
        offsets = np.arange(count) - position
        near = np.abs(offsets) <= REACH
        around[0, offsets[near] + REACH] += gain[near]
        around[1, offsets[near] + REACH] += 1


def _means(sums: np.ndarray) -> list[float | None]:
    """Return the means of `(2, n)` sums and counts; None where the count is 0."""
    return [float(total / count) if count else None for total, count in sums.T]


def _by_side(around: np.ndarray, reach: int) -> np.ndarray:
    """Return the sums and counts `(2, 2)` over the `reach` tokens before and the `reach` tokens after nuggets."""
    before, after = around[:, REACH - reach : REACH], around[:, REACH + 1 : REACH + 1 + reach]
    return np.stack([before.sum(1), after.sum(1)], axis=1)


@dataclass(frozen=True)
class Sides:
    """Mean gain before and after a nugget, with standard errors over documents."""

    before: float
    after: float
    before_error: float | None = None
    """None for a single document, and in results of earlier versions."""
    after_error: float | None = None
    covariance: float | None = None

    @classmethod
    def of(cls, sides: np.ndarray) -> Sides:
        """Return the means of sums and counts by document, `(documents, 2, 2)`, as ratio estimates."""
        sums, counts = sides[:, 0], sides[:, 1]
        means = sums.sum(0) / counts.sum(0).clip(1)
        before, after = means.tolist()
        if (documents := len(sides)) < 2:
            return cls(before, after)
        residuals = (sums - means * counts) / counts.mean(0).clip(1e-9)
        spread = np.cov(residuals.T) / documents
        before_error, after_error = np.sqrt(spread.diagonal()).tolist()
        return cls(before, after, before_error, after_error, float(spread[0, 1]))

    def excess(self, factor: float) -> tuple[float, float]:
        """Return the 95% interval of `before - factor * after`; without errors, the value twice."""
        value = self.before - factor * self.after
        if self.before_error is None or self.after_error is None or self.covariance is None:
            return value, value
        variance = self.before_error**2 + factor**2 * self.after_error**2 - 2 * factor * self.covariance
        spread = Z * math.sqrt(max(0.0, variance))
        return value - spread, value + spread

    def __str__(self) -> str:
        shown = [
            f"{mean:.4f}" + ("" if error is None else f" ± {error:.4f}")
            for mean, error in ((self.before, self.before_error), (self.after, self.after_error))
        ]
        return f"{shown[0]} before a nugget and {shown[1]} after it"


def before_and_after(found: dict[str, Any], reach: int) -> Sides:
    """Return the mean gain over the `reach` tokens before a nugget and over the `reach` tokens after it."""
    if "sides" in found:
        return Sides(**found["sides"])
    gain = dict(zip(found["around"]["offsets"], found["around"]["gain"], strict=True))
    before = [gain[-i] for i in range(1, reach + 1) if gain[-i] is not None]
    after = [gain[i] for i in range(1, reach + 1) if gain[i] is not None]
    return Sides(float(np.mean(before)), float(np.mean(after)))


def near_tokens(ratio: float) -> int:
    """Return the number of tokens per nugget, over which the two sides of a nugget are compared."""
    return min(REACH, round(1 / ratio))


def to_markdown(results: dict[str, Any]) -> str:
    """Format positions and largest gains of the first nuggets as Markdown tables."""
    lines, reach = [], near_tokens(results["settings"]["ratio"])
    for found in results["results"]:
        lines += ["| nugget | documents | mean position | largest gain | at token |", "|---|---|---|---|---|"]
        for item in found["by_order"]:
            known = [(gain, index) for index, gain in enumerate(item["gain"]) if gain is not None]
            largest, index = max(known)
            count = sum(item["positions"])
            mean = sum(i * n for i, n in enumerate(item["positions"])) / count
            lines.append(
                f"| {item['nugget']} | {item['documents']:,} | {mean:.1f} | {largest:.3f} | {index} |"
            )
        lines += [
            "",
            f"{found['documents']:,} documents of up to {found['max_tokens']} tokens, {found['nuggets']:,} nuggets. "
            f"Mean gain over {reach} tokens: {before_and_after(found, reach)}.",
            "",
        ]
    settings, data = results["settings"], ", ".join(item["source"] for item in results["data"])
    lines.append(f"{data}, r = {settings['ratio']:g}; the baseline is {settings['baseline']}.")
    return "\n".join(lines) + "\n"
