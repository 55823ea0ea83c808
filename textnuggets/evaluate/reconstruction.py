"""How much of a text its nuggets keep: BLEU of the decoded text, by ratio (the paper's section 5.1)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from textnuggets.errors import MissingExtraError
from textnuggets.evaluate.results import provenance
from textnuggets.model.modeling import NuggetModel
from textnuggets.progress import Progress
from textnuggets.train.batching import Collator
from textnuggets.train.data import load_corpus, tokenizers_of
from textnuggets.train.measuring import TeacherForced
from textnuggets.train.recipe import DataRecipe, Recipe

BATCH = 16  # documents decoded together


@dataclass
class Fidelity:
    """What came back at one ratio."""

    ratio: float
    bleu: float
    """Micro-averaged BLEU of the decoded texts, by sacrebleu."""
    exact: float
    """The share of documents that came back to the letter."""
    token_accuracy: float
    """The share of tokens that are predicted right when those before them are given."""
    loss: float
    """Negative log-likelihood of a token, in nats."""
    documents: int
    tokens: int
    vectors: int


def evaluate_reconstruction(
    model: NuggetModel,
    sources: Sequence[str],
    ratios: Sequence[float],
    beams: int = 5,
    documents: int = 200,
    max_tokens: int = 128,
    seed: int = 0,
    cache: str = DataRecipe.cache,
) -> dict[str, Any]:
    """Decode packed documents from their nuggets and compare.

    Args:
        model: A nugget model with a decoder, trained to autoencode.
        sources: Corpora, as for training.
        ratios: Compression ratios.
        beams: Beam width; the paper's is 5.
        documents: How many are drawn.
        max_tokens: Their length at most; adjacent sentences are joined up to it.
        seed: Decides which are drawn.
        cache: Where packed documents are kept.
    """
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise MissingExtraError("sacrebleu", "evaluate", "BLEU") from error
    recipe = Recipe(data=DataRecipe(max_tokens=max_tokens, min_tokens=16, cache=cache))
    corpus = load_corpus(sources, recipe, tokenizers_of(model, recipe))
    rows = random.Random(seed).sample(range(len(corpus)), min(documents, len(corpus)))
    texts = [source for source, _ in corpus.texts(rows)]
    bleu = BLEU()
    found: list[Fidelity] = []
    with Progress("reconstruct", total=len(ratios) * len(rows)) as progress:
        for ratio in ratios:
            with model.evaluating():
                forced = TeacherForced.of(
                    model, corpus, rows, ratio, Collator(model.pad_id), BATCH * max_tokens
                )
            targets = float(forced.targets)
            decoded: list[str] = []
            vectors = 0
            for start in range(0, len(texts), BATCH):
                nuggets = model.encode(texts[start : start + BATCH], ratio=ratio, batch_size=BATCH)
                vectors += sum(len(item) for item in nuggets)
                decoded += model.reconstruct(nuggets, num_beams=beams, batch_size=BATCH)
                progress.add(len(nuggets))
            exact = sum(a == b for a, b in zip(decoded, texts, strict=True)) / len(texts)
            score = bleu.corpus_score(decoded, [texts]).score
            accuracy, loss = float(forced.correct) / targets, float(forced.loss) / targets
            found.append(Fidelity(ratio, score, exact, accuracy, loss, len(texts), int(targets), vectors))
    return {
        "question": "reconstruction",
        "settings": {"beams": beams, "max_tokens": max_tokens, "bleu": str(bleu.get_signature())},
        **provenance(sources, seed),
        "results": [asdict(item) for item in found],
    }


def to_markdown(results: dict[str, Any]) -> str:
    """The results as a table."""
    rows = ["| r | BLEU | exact | token accuracy | vectors / tokens |", "|---|---|---|---|---|"]
    for item in results["results"]:
        rows.append(
            f"| {item['ratio']:g} | {item['bleu']:.1f} | {item['exact']:.1%} | {item['token_accuracy']:.1%} | "
            f"{item['vectors']:,} / {item['tokens']:,} |"
        )
    settings, data = results["settings"], ", ".join(item["source"] for item in results["data"])
    count = results["results"][0]["documents"]
    rows += [
        "",
        f"{data}: {count} documents of up to {settings['max_tokens']} tokens, {settings['beams']} beams.",
    ]
    return "\n".join(rows) + "\n"
