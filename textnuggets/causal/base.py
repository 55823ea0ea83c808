"""The base model: loading it, and a fingerprint that recognizes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from textnuggets.causal.families import FAMILIES
from textnuggets.errors import BackboneError
from textnuggets.io.hashing import digest_bytes
from textnuggets.io.panics import catching_panics
from textnuggets.model.checkpoint import check_complete, check_shards, explain_loading, quiet_loading
from textnuggets.model.trial import check_finite, check_vocabulary

SAMPLES = 4096  # values of each tensor in a fingerprint
DIGITS = 32


def load_base(name: str, **options: Any) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Load a base model and its tokenizer from a folder or a hub id.

    Args:
        name: Folder or hub id.
        options: Arguments of transformers' `from_pretrained`; the default dtype is float32.
    """
    options = {"dtype": torch.float32, **options}
    with explain_loading(name), quiet_loading(), catching_panics():
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        if config.model_type not in FAMILIES:  # before large files are read
            raise BackboneError(
                f"{name!r} is a {config.model_type!r} model, which is not supported as a base: use a model of the types "
                f"{', '.join(FAMILIES)}."
            )
        check_shards(name)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            name, trust_remote_code=False, use_safetensors=True, output_loading_info=True, **options
        )
        base, report = loaded
        check_complete(name, report["missing_keys"])
        check_finite(base, name)
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        if not isinstance(tokenizer, PreTrainedTokenizerFast):
            raise BackboneError(
                f"the tokenizer of {name!r} ({type(tokenizer).__name__}) has no character offsets: save a fast "
                f"tokenizer (tokenizer.json) with the model."
            )
        check_vocabulary(tokenizer, base, name)
    return base, tokenizer


def base_fingerprint(base: PreTrainedModel) -> str:
    """Return a hash of a base model without nuggets.

    It is made of some thousand values of every tensor, which any training changes, so that a large model is recognized
    at once. They are rounded to bfloat16, so that it does not depend on the precision of loading.
    """
    parts = []
    for name, value in base.state_dict().items():
        sample = value.detach().flatten()[:: max(1, value.numel() // SAMPLES)].to(torch.bfloat16)
        data = sample.cpu().contiguous().view(torch.int16).numpy().tobytes()
        parts.append(f"\n{name} {tuple(value.shape)} ".encode() + data)
    return digest_bytes(*parts)[:DIGITS]


def same_base(name: str) -> str:
    """Return a name of a base for a checkpoint: a hub id unchanged, a folder as an absolute path."""
    return str(Path(name).resolve()) if Path(name).is_dir() else name
