"""What a nugget stands for: the probability gain of exposing it alone (the paper's section 5.3).

g_i^j = p(y_i | y_<i, z_j) - p(y_i | y_<i), teacher-forced, with one nugget z_j exposed at a time. The
baseline exposes nothing: one vector of zeros takes the place of the nugget, so that cross-attention,
which has to read something, reads a constant.

A nugget's place is told on the target: for an autoencoder the nugget's own token, for a translation the token that is as
far into the target as the nugget is into the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from textnuggets.analysis.attribution import probability_gain
from textnuggets.data.packed import CACHE, PackedCorpus
from textnuggets.errors import BackboneError
from textnuggets.evaluate.provenance import draw_documents, provenance
from textnuggets.io.progress import Progress
from textnuggets.model.modeling import NuggetModel

SHOWN = 13  # nuggets by order, the first of each document, whose curves are kept
REACH = 64  # tokens to either side of a nugget in the centred curve


def evaluate_probing(
    model: NuggetModel,
    sources: Sequence[str],
    ratio: float | None = None,
    documents: int = 1000,
    lengths: Sequence[int] = (128,),
    languages: Sequence[str] = ("en",),
    seed: int = 0,
    cache: str = CACHE,
) -> dict[str, Any]:
    """Mean probability gain over token index, by the order of the nugget, and around the nugget.

    Args:
        model: A nugget model with a decoder.
        sources: Corpora, as for training.
        ratio: Compression ratio; the model's own by default.
        documents: How many are drawn of each length.
        lengths: How many tokens the documents have at most.
        languages: The language of the texts; source and target for translation.
        seed: Decides which are drawn.
        cache: Where packed documents are kept.
    """
    if not model.can_decode:
        raise BackboneError(f"a {model.adapter.config.model_type} backbone has no decoder to probe.")
    ratio = model.config.ratio if ratio is None else ratio
    found = []
    with Progress("probing", total=len(lengths) * documents) as progress:
        for length in lengths:
            # Documents that nearly fill the length, so that a token index means the same in all of them.
            corpus, rows = draw_documents(
                model, sources, length, documents, seed, languages, cache, min_tokens=length * 3 // 4
            )
            found.append(_probe(model, corpus, rows, ratio, length, progress))
    return {
        "question": "probing",
        "settings": {
            "ratio": ratio,
            "baseline": "a vector of zeros in place of the nugget",
            "languages": list(languages),
        },
        **provenance(model, sources, seed),
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
    """The curves of documents of one length."""
    by_order = np.zeros((2, SHOWN, length))  # sums of g, and how many
    places = np.zeros((SHOWN, length), dtype=np.int64)  # where the nuggets stand
    around = np.zeros((2, 2 * REACH + 1))
    nuggets = 0
    with model.evaluating(), torch.no_grad():
        for row in rows:
            example = corpus[row]
            ids = torch.from_numpy(example.input_ids.astype(np.int64)).to(model.device)
            labels = torch.from_numpy(example.labels.astype(np.int64)).to(model.device)
            gains, positions = probability_gain(model, ids, labels, ratio)
            nuggets += len(positions)
            on_target = positions * len(labels) // len(ids)
            _add(gains.cpu().numpy(), on_target.cpu().numpy(), by_order, places, around)
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
    }


def _add(
    gains: np.ndarray, positions: np.ndarray, by_order: np.ndarray, places: np.ndarray, around: np.ndarray
) -> None:
    """Add one document's gains `(k, targets)` to the sums."""
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
    """Means of `(2, n)` sums and counts; None where there is nothing."""
    return [float(total / count) if count else None for total, count in sums.T]


def before_and_after(found: dict[str, Any], reach: int) -> tuple[float, float]:
    """The mean gain over `reach` tokens before a nugget, and over as many after it."""
    gain = dict(zip(found["around"]["offsets"], found["around"]["gain"], strict=True))
    before = [gain[-i] for i in range(1, reach + 1) if gain[-i] is not None]
    after = [gain[i] for i in range(1, reach + 1) if gain[i] is not None]
    return float(np.mean(before)), float(np.mean(after))


def reach_of(results: dict[str, Any]) -> int:
    """How many tokens there are to a nugget: as far from one as a comparison of its two sides goes."""
    return min(REACH, round(1 / results["settings"]["ratio"]))


def to_markdown(results: dict[str, Any]) -> str:
    """Where the gain lies, in short."""
    lines, reach = [], reach_of(results)
    for found in results["results"]:
        before, after = before_and_after(found, reach)
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
            f"Mean gain over the {reach} tokens before a nugget: {before:.4f}; over the {reach} after it: {after:.4f}.",
            "",
        ]
    settings, data = results["settings"], ", ".join(item["source"] for item in results["data"])
    lines.append(f"{data}, r = {settings['ratio']:g}; the baseline is {settings['baseline']}.")
    return "\n".join(lines) + "\n"
