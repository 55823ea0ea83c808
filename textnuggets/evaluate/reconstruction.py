"""How much of a text its nuggets keep: BLEU of the decoded text, by ratio (the paper's section 5.1)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from textnuggets.errors import MissingExtraError
from textnuggets.evaluate.results import provenance
from textnuggets.model.loss import IGNORED
from textnuggets.model.modeling import NuggetModel
from textnuggets.progress import Progress
from textnuggets.train.batching import Collator
from textnuggets.train.data import PackedCorpus, load_corpus, tokenizers_of
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
            loss, accuracy, tokens = teacher_forced(model, corpus, rows, ratio)
            decoded: list[str] = []
            vectors = 0
            for start in range(0, len(texts), BATCH):
                nuggets = model.encode(texts[start : start + BATCH], ratio=ratio, batch_size=BATCH)
                vectors += sum(len(item) for item in nuggets)
                decoded += model.reconstruct(nuggets, num_beams=beams, batch_size=BATCH)
                progress.add(len(nuggets))
            exact = sum(a == b for a, b in zip(decoded, texts, strict=True)) / len(texts)
            score = bleu.corpus_score(decoded, [texts]).score
            found.append(Fidelity(ratio, score, exact, accuracy, loss, len(texts), tokens, vectors))
    return {
        "question": "reconstruction",
        "settings": {"beams": beams, "max_tokens": max_tokens, "bleu": str(bleu.get_signature())},
        **provenance(sources, seed),
        "results": [asdict(item) for item in found],
    }


def teacher_forced(
    model: NuggetModel, corpus: PackedCorpus, rows: Sequence[int], ratio: float
) -> tuple[float, float, int]:
    """Loss and token accuracy with the right tokens before each given, and the number of source tokens."""
    collate = Collator(model.pad_id)
    loss, correct, targets, tokens = 0.0, 0, 0, 0
    with model.evaluating(), torch.no_grad():
        for start in range(0, len(rows), BATCH):
            batch = collate([corpus[row] for row in rows[start : start + BATCH]])
            batch = {name: value.to(model.device) for name, value in batch.items()}
            output = model(**batch, ratio=ratio, num_items_in_batch=1)
            assert output.loss is not None
            assert output.logits is not None
            counted = batch["labels"] != IGNORED
            loss += float(output.loss)
            correct += int((output.logits.argmax(-1) == batch["labels"])[counted].sum())
            targets += int(counted.sum())
            tokens += int(batch["attention_mask"].sum())
    return loss / targets, correct / targets, tokens
