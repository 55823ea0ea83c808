"""Speed of encode() compared with the bare encoder, and with sentence-transformers with the same weights."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM

from bench.measuring import compare, record
from textnuggets import NuggetConfig, NuggetModel
from textnuggets.model.padding import pad
from textnuggets.model.windows import cut_into_windows

BATCH = 32


def bare_encoder(name: str, texts: list[str], source: str, rounds: int) -> None:
    """Compare with the forward pass alone on the batches of encode(); only our side includes tokenization."""
    model = NuggetModel.from_backbone(name, NuggetConfig(ratio=0.1, scorer_layer=3))
    is_seq2seq = model.can_decode
    loaded: Any = (AutoModelForSeq2SeqLM if is_seq2seq else AutoModel).from_pretrained(
        name, trust_remote_code=False
    )
    encoder = (loaded.get_encoder() if is_seq2seq else loaded).eval()
    cut = cut_into_windows(model.tokenizer, texts, model.window)
    ids = sorted((window.ids for parts in cut for window in parts), key=len, reverse=True)
    batches = [pad(ids[i : i + BATCH], model.pad_id) for i in range(0, len(ids), BATCH)]

    def theirs() -> None:
        with torch.inference_mode():
            for input_ids, mask in batches:
                encoder(input_ids=input_ids, attention_mask=mask.long())

    result = compare(lambda: model.encode(texts, batch_size=BATCH), theirs, rounds)
    kind = model.adapter.config.model_type
    record(
        f"encode-vs-bare-{kind}",
        "the throughput of the bare transformers encoder on the same batches",
        ">= 0.95",
        {"backbone": kind, "texts": len(texts), "source": source, "batch_size": BATCH, "ratio": 0.1},
        result,
    )


def sentence_transformers(name: str, texts: list[str], source: str, rounds: int) -> None:
    """Compare tokenizing, sorting, batching and encoding of texts that neither side truncates."""
    from sentence_transformers import SentenceTransformer

    model = NuggetModel.from_backbone(name, NuggetConfig(ratio=0.1, scorer_layer=3))
    peer = SentenceTransformer(name, device="cpu")
    limit = min(peer.max_seq_length or model.window, model.window)
    fitting = [text for text in texts if len(model.tokenizer(text).input_ids) <= limit]
    result = compare(
        lambda: model.encode(fitting, batch_size=BATCH),
        lambda: peer.encode(fitting, batch_size=BATCH, show_progress_bar=False),
        rounds,
    )
    record(
        "encode-vs-sentence-transformers",
        "the throughput of sentence-transformers' encode with the same weights",
        ">= 1.0",
        {"texts": len(fitting), "source": source, "batch_size": BATCH, "longest": limit, "ratio": 0.1},
        result,
    )
