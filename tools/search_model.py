"""Build the shipped model `search` from a pretrained encoder; nothing is trained by gradients.

    python -m tools.search_model OUT --backbone thenlper/gte-small --texts wikipedia/train.jsonl.gz \
        --texts questions/pubmed-titles.jsonl.gz --texts questions/train.jsonl.gz --texts novels/train.jsonl.gz \
        --texts bitext/mdn.en-fr.jsonl.gz

Nuggets are the means of equal chunks of token vectors, in which a token counts by the root of its content, rotated to
their principal components, which are partly whitened. Content, -log of the share of passages with the token, and
components come from the given corpora, as many passages of each.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from textnuggets import NuggetConfig, NuggetModel
from textnuggets.io.corpora import read_records
from textnuggets.train.projection import principal_components
from tools.sentence_pairs import passages

READ = 120_000  # passages of a corpus, from which those that are used are drawn


def read_documents(source: str) -> Iterator[str]:
    """Yield the passages of a corpus, or the documents of a file of queries and documents."""
    if "positive" in next(read_records([source])).fields:
        yield from (record.fields["positive"] for record in read_records([source]))
    else:
        yield from (" ".join(sentences) for sentences in passages([source]))


def draw(source: str, count: int, seed: int) -> list[str]:
    """Return a random sample of the passages of a corpus, in random order."""
    chosen = random.Random(seed)
    sample: list[str] = []
    for number, text in zip(range(READ), read_documents(source), strict=False):
        if len(sample) < count:
            sample.append(text)
        elif (slot := chosen.randrange(number + 1)) < count:
            sample[slot] = text
    chosen.shuffle(sample)
    return sample


def count_content(model: NuggetModel, texts: list[str]) -> torch.Tensor:
    """Return the `(vocabulary,)` content of each token: -log of the share of texts that contain it, in nats."""
    seen = np.zeros(len(model.content))
    for start in range(0, len(texts), 1000):
        for ids in model.tokenizer(texts[start : start + 1000], add_special_tokens=False)["input_ids"]:
            seen[sorted(set(ids))] += 1
    content = np.log((len(texts) + 1) / (seen + 0.5)).clip(min=0)
    content[model.tokenizer.all_special_ids] = 0  # in every text, but in none without special tokens
    return torch.tensor(content, dtype=torch.float32)


def second_moments(model: NuggetModel, texts: list[str]) -> torch.Tensor:
    """Return the `(d, d)` sum of the outer products of the nuggets of texts, as unit vectors."""
    moments = np.zeros((model.dim, model.dim))
    for nuggets in model.encode_iter(texts):
        vectors = nuggets.vectors / np.linalg.norm(nuggets.vectors, axis=1, keepdims=True)
        moments += vectors.T.astype(np.float64) @ vectors
    return torch.tensor(moments)


def build(
    backbone: str,
    sources: list[str],
    ratio: float,
    dim: int | None,
    whiten: float,
    counted: int,
    fitted: int,
    seed: int,
) -> NuggetModel:
    """Return the model: content and projection from a sample of every corpus."""
    config = NuggetConfig(
        ratio=ratio,
        query_ratio=0.25,
        scorer_layer=0,
        selector="even",
        gather="content",
        feedback=False,
        residual="off",
        objective="contrastive",
        window=256,  # chunk means of longer windows find less (LOG.md)
    )
    model = NuggetModel.from_backbone(backbone, config, dtype=torch.float32)
    samples = [draw(source, counted, seed) for source in sources]
    model.content.copy_(count_content(model, [text for sample in samples for text in sample]))
    moments = second_moments(model, [text for sample in samples for text in sample[:fitted]])
    model.value.weight.data = principal_components(moments, dim or model.dim, whiten).float()
    model.value.out_features = model.config.dim = dim or model.dim
    return model


def main() -> None:
    """Write the model."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.search_model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--backbone", default="thenlper/gte-small", help="hub id or folder")
    parser.add_argument("--texts", action="append", required=True, help="corpus; can be repeated")
    parser.add_argument("--ratio", type=float, default=0.067, help="nuggets per token")
    parser.add_argument("--dim", type=int, help="dimensions; those of the backbone by default")
    parser.add_argument("--whiten", type=float, default=0.2, help="exponent of principal_components")
    parser.add_argument("--counted", type=int, default=12_000, help="passages of each corpus for content")
    parser.add_argument("--fitted", type=int, default=300, help="passages of each corpus for the projection")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    made = build(
        given.backbone,
        given.texts,
        given.ratio,
        given.dim,
        given.whiten,
        given.counted,
        given.fitted,
        given.seed,
    )
    made.save_pretrained(given.out)


if __name__ == "__main__":
    main()
