"""Byte fallback: extend a Unigram tokenizer and its model to represent every character.

The vocabulary of a translation model lacks characters that occur in real text, such as `|` or curly quotes, and its
normalizer replaces others (`½` becomes `1⁄2`). After `add_byte_fallback` no character is lost or replaced: common
characters have their own piece, all others are encoded as UTF-8 bytes.
"""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from textnuggets.errors import BackboneError
from textnuggets.model.modeling import NuggetModel

WORD_START = "\u2581"  # SentencePiece's mark for the space before a word
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
# A new piece starts halfway between a random vector and the piece it resembles.
RESEMBLES = {
    "“": '"', "”": '"', "„": '"', "’": "'", "‘": "'", "‚": "'", "|": "/", "…": ".", "″": '"', "′": "'",
    "²": "2", "³": "3", "¹": "1", "ª": "a", "º": "o", "µ": "u", "™": "®", "`": "'",
}  # fmt: skip
PRINTABLE = [chr(code) for code in (*range(0x21, 0x7F), *range(0xA1, 0x100))]
SCORE = -12.0  # log-probability of a new piece, similar to a rare one


def add_byte_fallback(model: NuggetModel, seed: int = 0) -> NuggetModel:
    """Return a copy of a model whose tokenizer can represent every character.

    Missing printable ASCII, Latin-1 and common typographic characters become pieces; 256 byte pieces represent
    the rest. The normalizer keeps only its whitespace rules. Existing ids do not change.

    Args:
        model: Nugget model with a Unigram tokenizer, such as Marian's.
        seed: Seed of the new embeddings.
    """
    tokenizer, added = extend_tokenizer(model.tokenizer)
    config = deepcopy(model.config)
    assert config.backbone is not None
    for name in ("vocab_size", "decoder_vocab_size"):
        if getattr(config.backbone, name, None):
            setattr(config.backbone, name, len(tokenizer))
    larger = NuggetModel(config)
    larger._tokenizer = tokenizer
    larger.backbone.generation_config = deepcopy(model.backbone.generation_config)
    old, state = model.state_dict(), larger.state_dict()
    generator = torch.Generator().manual_seed(seed)
    like = [_resembled(piece, tokenizer) for piece in added]
    rows: dict[tuple[int, ...], Tensor] = {}  # tied tables get the same new rows
    for key, value in state.items():
        if value.shape == old[key].shape:
            state[key] = old[key]
        elif value.ndim == 2 and value.shape[0] > old[key].shape[0]:  # (vocabulary, d)
            shape = tuple(value.shape)
            if shape not in rows:
                rows[shape] = _new_rows(old[key].float(), like, generator).to(old[key].dtype)
            state[key] = torch.cat([old[key], rows[shape]])
        else:  # (1, vocabulary) output bias: the bias of the median piece
            median = old[key].median().expand(*value.shape[:-1], len(added))
            state[key] = torch.cat([old[key], median.to(old[key].dtype)], dim=-1)
    larger.load_state_dict(state)
    return larger.to(model.dtype).eval()  # type: ignore[arg-type]


def extend_tokenizer(tokenizer: PreTrainedTokenizerFast) -> tuple[PreTrainedTokenizerFast, list[str]]:
    """Return the tokenizer with byte fallback, and the added pieces in the order of their ids."""
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    if spec["model"]["type"] != "Unigram":
        raise BackboneError(
            f"byte fallback is for Unigram tokenizers; this one is {spec['model']['type']}, which encodes bytes "
            f"already or cannot."
        )
    vocabulary = spec["model"]["vocab"]
    known = {piece for piece, _ in vocabulary}
    characters = dict.fromkeys([*PRINTABLE, *RESEMBLES])
    pieces = [*characters, *(WORD_START + character for character in ("“", "‘", "|")), *BYTES]
    added = [piece for piece in pieces if piece not in known]
    vocabulary += [[piece, SCORE] for piece in added]
    spec["model"]["byte_fallback"] = True
    spec["normalizer"] = _without_charsmap(spec["normalizer"])
    spec["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": WORD_START}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    larger = deepcopy(tokenizer)
    larger._tokenizer = Tokenizer.from_str(json.dumps(spec))
    return larger, added


def _without_charsmap(normalizer: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a normalizer without SentencePiece's character replacement table."""
    if normalizer is None or normalizer["type"] == "Precompiled":
        return None
    if normalizer["type"] != "Sequence":
        return normalizer
    return {
        **normalizer,
        "normalizers": [
            _without_charsmap(step) for step in normalizer["normalizers"] if step["type"] != "Precompiled"
        ],
    }


def _resembled(piece: str, tokenizer: PreTrainedTokenizerFast) -> int | None:
    """Return the id of the piece a new piece resembles, or None."""
    near = RESEMBLES.get(piece.removeprefix(WORD_START))
    return tokenizer.get_vocab().get(near) if near else None


def _new_rows(table: Tensor, like: list[int | None], generator: torch.Generator) -> Tensor:
    """Return `(new, d)` embeddings with the distribution of the table, halfway to those they resemble."""
    mean, std = table.mean(0), table.std(0)
    rows = mean + std * torch.randn(len(like), table.shape[1], generator=generator)
    for row, near in zip(rows, like, strict=True):
        if near is not None:
            row.copy_((row + table[near]) / 2**0.5)
    return rows
