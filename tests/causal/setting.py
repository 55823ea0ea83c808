"""Tiny decoder-only models with random weights, one per family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPTNeoXConfig,
    LlamaConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)

from tests.tiny import BOS, EOS, PAD, tiny_tokenizer
from textnuggets.causal.config import CausalConfig
from textnuggets.causal.reader import NuggetReader

SEGMENT = 8
SIZES: dict[str, Any] = {
    "vocab_size": len(tiny_tokenizer()),
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "initializer_range": 0.2,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
CONFIGS = {
    "llama": lambda: LlamaConfig(**GROUPED),
    "qwen2": lambda: Qwen2Config(**GROUPED),
    "qwen3": lambda: Qwen3Config(**GROUPED, head_dim=8),
    # Sliding windows shorter than a text, in all layers but the second.
    "gemma3": lambda: Gemma3TextConfig(
        **GROUPED, head_dim=8, query_pre_attn_scalar=8, sliding_window=12, sliding_window_pattern=2
    ),
    "gpt_neox": lambda: GPTNeoXConfig(**SIZES, rotary_pct=0.5),
}


def tiny_base(family: str = "llama", attention: str = "sdpa") -> Any:
    """Return a tiny base model with random weights from a fixed seed."""
    torch.manual_seed(0)
    config: PreTrainedConfig = CONFIGS[family]()
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()


def tiny_reader(
    family: str = "llama", attention: str = "sdpa", trained: bool = False, **settings: Any
) -> NuggetReader:
    """Return a tiny model with nuggets; `trained` gives its new weights values other than zero."""
    settings = {"segment": SEGMENT, "ratio": 0.25, "scorer_layer": 2, "rank": 2, **settings}
    reader = NuggetReader(CausalConfig(**settings), tiny_base(family, attention))
    if trained:
        spoil(reader)
    return reader


def spoil(reader: NuggetReader) -> None:
    """Give the new weights random values."""
    torch.manual_seed(1)
    for value in reader.parameters():
        if value.requires_grad:
            torch.nn.init.normal_(value, std=0.3)


def tiny_ids(length: int = 45, rows: int = 2) -> torch.Tensor:
    """Return random token ids."""
    generator = torch.Generator().manual_seed(2)
    return torch.randint(4, SIZES["vocab_size"], (rows, length), generator=generator)


def save_base(folder: Path, positions: int = SIZES["max_position_embeddings"]) -> None:
    """Write a tiny base model with its tokenizer."""
    base = tiny_base()
    base.config.max_position_embeddings = positions
    base.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
