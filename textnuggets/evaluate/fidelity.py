"""Vectors saved by choosing the ratio per document instead of one ratio for all documents."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from textnuggets.analysis.fidelity import LADDER, check_fidelity, encode_and_measure
from textnuggets.evaluate.provenance import provenance
from textnuggets.evaluate.sample import Sample
from textnuggets.io.progress import Progress
from textnuggets.model.modeling import NuggetModel

BATCH = 32


def evaluate_fidelity(
    model: NuggetModel,
    sample: Sample,
    fidelity: float = 0.95,
    max_tokens: int = 128,
) -> dict[str, Any]:
    """Measure documents at every ratio of the ladder, and compare a ratio per document with one for all.

    Args:
        model: Nugget model with a decoder.
        sample: Documents to measure.
        fidelity: Target BLEU of `encode_to_fidelity`, from 0 to 1.
        max_tokens: Maximum number of tokens per document.
    """
    check_fidelity(model, fidelity)
    corpus, rows = sample.draw(model, max_tokens)
    texts = [text for text, _ in corpus.texts(rows)]
    scores = np.zeros((len(LADDER), len(texts)))
    vectors = np.zeros((len(LADDER), len(texts)), dtype=np.int64)
    tokens = 0
    with Progress("fidelity", total=len(LADDER) * len(texts)) as progress:
        for step, ratio in enumerate(LADDER):
            for start in range(0, len(texts), BATCH):
                found = encode_and_measure(model, texts[start : start + BATCH], ratio, BATCH)
                places = range(start, start + len(found))
                scores[step, places] = [item.fidelity for item in found]
                vectors[step, places] = [len(item.nuggets) for item in found]
                tokens += sum(item.nuggets.token_count for item in found) if not step else 0
                progress.add(len(found))
    steps = lowest_faithful(scores, fidelity)
    own_score = float(np.take_along_axis(scores, steps[None], 0).mean())
    own_vectors = int(np.take_along_axis(vectors, steps[None], 0).sum())
    needed = vectors_of_one_ratio(scores.mean(1), vectors.sum(1), own_score)
    reached = np.take_along_axis(scores, steps[None], 0)[0] >= fidelity
    used = Counter(steps.tolist())
    return {
        "question": "fidelity",
        "settings": {"fidelity": fidelity, "max_tokens": max_tokens, "measure": "sentence BLEU, greedy"},
        **provenance(model, sample),
        "documents": len(texts),
        "tokens": tokens,
        "fixed": [
            {"ratio": ratio, "fidelity": float(scores[step].mean()), "vectors": int(vectors[step].sum()),
             "reached": float((scores[step] >= fidelity).mean()), "chosen": used[step]}
            for step, ratio in enumerate(LADDER)
        ],
        "each": {"fidelity": own_score, "vectors": own_vectors, "reached": float(reached.mean())},
        "one_ratio_vectors": needed,
        "saved": None if needed is None else 1 - own_vectors / needed,
    }  # fmt: skip


def lowest_faithful(scores: np.ndarray, fidelity: float) -> np.ndarray:
    """Return each document's step of the ladder: the first that reaches the fidelity, or else the best.

    Args:
        scores: `(steps, documents)` fidelity.
        fidelity: Target fidelity.
    """
    enough = scores >= fidelity
    return np.where(enough.any(0), enough.argmax(0), scores.argmax(0))


def vectors_of_one_ratio(means: np.ndarray, vectors: np.ndarray, fidelity: float) -> float | None:
    """Return the number of vectors one ratio needs for a mean fidelity, interpolated linearly between steps.

    None if no ratio reaches it.
    """
    for step, (mean, count) in enumerate(zip(means, vectors, strict=True)):
        if mean >= fidelity:
            if not step:
                return float(count)
            share = (fidelity - means[step - 1]) / (mean - means[step - 1])
            return float(vectors[step - 1] + share * (count - vectors[step - 1]))
    return None


def to_markdown(results: dict[str, Any]) -> str:
    """Format the ladder and the choice per document as a Markdown table."""
    target, tokens = results["settings"]["fidelity"], results["tokens"]
    lines = [
        f"| ratio | mean fidelity | reach {target:g} | vectors per token | documents that stop here |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {item['ratio']:g} | {item['fidelity']:.3f} | {item['reached']:.1%} | {item['vectors'] / tokens:.3f} | "
        f"{item['chosen']} |"
        for item in results["fixed"]
    ]
    each = results["each"]
    lines.append(
        f"| **a ratio per document** | {each['fidelity']:.3f} | {each['reached']:.1%} | {each['vectors'] / tokens:.3f} | |"
    )
    needed = results["one_ratio_vectors"]
    verdict = (
        "No single ratio reaches the same mean fidelity."
        if needed is None
        else f"One ratio for all needs {needed / tokens:.3f} vectors per token for the same mean fidelity: "
        f"{results['saved']:.1%} of the vectors are saved."
    )
    data = ", ".join(item["source"] for item in results["data"])
    settings = results["settings"]
    lines += [
        "",
        f"{verdict} Fidelity is {settings['measure']}; {data}, {results['documents']} documents of up to "
        f"{settings['max_tokens']} tokens.",
    ]
    return "\n".join(lines) + "\n"
