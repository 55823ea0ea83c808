"""Speed of greedy reconstruct() compared with generate() on the bare backbone, which attends to all tokens."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM

from bench.measuring import compare, record
from textnuggets import NuggetConfig, NuggetModel
from textnuggets.model.padding import pad

BATCH, NEW_TOKENS = 16, 64


def bare_generate(name: str, texts: list[str], source: str, rounds: int) -> None:
    """Compare decoding of exactly NEW_TOKENS tokens per text from precomputed states."""
    model = NuggetModel.from_backbone(name, NuggetConfig(ratio=0.1, scorer_layer=3))
    bare: Any = AutoModelForSeq2SeqLM.from_pretrained(name, trust_remote_code=False).eval()
    texts = [text for text in texts if 64 <= len(model.tokenizer(text).input_ids) <= 256][: 2 * BATCH]
    nuggets = sorted(model.encode(texts), key=lambda item: -item.token_count)
    ids = sorted((model.tokenizer(text).input_ids for text in texts), key=len, reverse=True)
    batches = []
    with torch.inference_mode():
        for i in range(0, len(ids), BATCH):
            input_ids, mask = pad(ids[i : i + BATCH], model.pad_id)
            batches.append((bare.get_encoder()(input_ids=input_ids, attention_mask=mask.long()), mask.long()))
    length: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS}

    def theirs() -> None:
        for states, mask in batches:
            ids = bare.generate(
                encoder_outputs=states, attention_mask=mask, num_beams=1, do_sample=False, **length
            )
            model.tokenizer.batch_decode(ids, skip_special_tokens=True)

    result = compare(
        lambda: model.reconstruct(nuggets, num_beams=1, batch_size=BATCH, **length), theirs, rounds
    )
    record(
        "reconstruct-vs-generate",
        "the throughput of generate on the bare backbone with full cross-attention, greedy",
        ">= 1.0",
        {"texts": len(texts), "source": source, "batch_size": BATCH, "new_tokens": NEW_TOKENS, "ratio": 0.1},
        result,
    )
