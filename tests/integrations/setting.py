"""A tiny late-interaction model."""

from __future__ import annotations

from pathlib import Path

import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

from tests.tiny import CONFIGS, tiny_tokenizer
from textnuggets.model.backbone import build_backbone


def save_colbert(folder: Path, family: str) -> None:
    """Save a tiny ColBERT model: a projection, prompts, and punctuation that is not compared."""
    torch.manual_seed(0)
    build_backbone(CONFIGS[family]()).save_pretrained(folder / "backbone")
    tiny_tokenizer().save_pretrained(folder / "backbone")
    modules = [
        Transformer(str(folder / "backbone"), document_length=48, query_length=16),
        Dense(32, 16, bias=False, activation_function=None, module_input_name="token_embeddings"),
        MultiVectorMask(skiplist_words=["."]),
        Normalize(module_input_name="token_embeddings"),
    ]
    prompts = {"query": "on ", "document": "the "}
    MultiVectorEncoder(modules=modules, prompts=prompts, device="cpu").save_pretrained(str(folder))
