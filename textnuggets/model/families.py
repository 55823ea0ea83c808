"""Supported backbone architectures, and what differs between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig

from textnuggets.errors import BackboneError

T5_WINDOW = 512  # T5 has no hard limit; it was trained on 512 tokens


@dataclass(frozen=True)
class Family:
    """Properties of an architecture."""

    layers: str
    """Dotted path of the encoder's list of layers."""
    above: tuple[str, ...] = ()
    """Encoder modules after the layers, which are never frozen."""
    decodes: bool = False
    """Whether there is a decoder."""
    scales_attention: bool = True
    """Whether attention logits are divided by sqrt(head_dim); T5 does not."""
    padded_positions: bool = False
    """Whether position ids start after the padding id, which leaves fewer for text."""
    options: tuple[tuple[str, Any], ...] = ()
    """Extra arguments when the model is built."""


_NO_POOLER = (("add_pooling_layer", False),)

FAMILIES: dict[str, Family] = {
    "bart": Family("layers", decodes=True),
    "mbart": Family("layers", above=("layer_norm",), decodes=True),
    "marian": Family("layers", decodes=True),
    "pegasus": Family("layers", above=("layer_norm",), decodes=True),
    "t5": Family("block", above=("final_layer_norm",), decodes=True, scales_attention=False),
    "bert": Family("encoder.layer", options=_NO_POOLER),
    "roberta": Family("encoder.layer", padded_positions=True, options=_NO_POOLER),
    "xlm-roberta": Family("encoder.layer", padded_positions=True, options=_NO_POOLER),
    "distilbert": Family("transformer.layer"),
    "modernbert": Family("layers", above=("final_norm",)),
    "mpnet": Family("encoder.layer", padded_positions=True, options=_NO_POOLER),
}


def find_family(config: PreTrainedConfig) -> Family:
    """Return the family of a backbone configuration; raise BackboneError if it is not supported."""
    family = FAMILIES.get(config.model_type)
    if family is None:
        with_decoder = ", ".join(name for name, f in FAMILIES.items() if f.decodes)
        encoders = ", ".join(name for name, f in FAMILIES.items() if not f.decodes)
        raise BackboneError(
            f"architecture {config.model_type!r} is not supported. "
            f"Encoder-decoders: {with_decoder}. Encoders, for search: {encoders}."
        )
    return family


def backbone_window(config: PreTrainedConfig, requested: int | None = None) -> int:
    """Return the maximum number of tokens encoded at once: `requested`, capped at the backbone's limit."""
    family = find_family(config)
    limit = getattr(config, "max_position_embeddings", None)
    if limit is None:
        return requested or T5_WINDOW
    # RoBERTa numbers positions from the padding id + 1; MPNet from 2, whatever the padding id.
    available = limit - max(config.pad_token_id, 1) - 1 if family.padded_positions else limit
    return available if requested is None else min(available, requested)
