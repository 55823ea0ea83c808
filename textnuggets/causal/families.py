"""Supported decoder-only families, and what differs between them; the only module that depends on their structure."""

from __future__ import annotations

from copy import copy, deepcopy
from typing import Any, NamedTuple

from torch import nn
from transformers import PreTrainedModel

from textnuggets.errors import BackboneError

ATTENTION = ("eager", "sdpa")


class Family(NamedTuple):
    """Names of modules in a family of models."""

    norm: str = "norm"
    """The norm after the last layer."""
    attention: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    """The projections of attention, which LoRA trains."""


FAMILIES = {
    "llama": Family(),
    "qwen2": Family(),
    "qwen3": Family(),
    "gemma3_text": Family(),
    "gpt_neox": Family("final_layer_norm", ("query_key_value", "dense")),
}


def check_base(base: PreTrainedModel) -> Family:
    """Return the family of a base model; raise BackboneError if the model is not supported."""
    kind = base.config.model_type
    if kind not in FAMILIES:
        raise BackboneError(
            f"a {kind!r} model is not supported as a base: use a model of the types {', '.join(FAMILIES)}."
        )
    attention = base.config._attn_implementation
    if attention not in ATTENTION:
        raise BackboneError(
            f"attention {attention!r} does not take scores: load the base with attn_implementation='sdpa' or 'eager'."
        )
    if getattr(base.config, "use_bidirectional_attention", None):
        raise BackboneError(f"{base.config.name_or_path!r} is not causal: it attends in both directions.")
    return FAMILIES[kind]


def layers_of(base: PreTrainedModel) -> nn.ModuleList:
    """Return the layers of a base model."""
    inner: Any = base.base_model
    layers: nn.ModuleList = inner.layers
    return layers


def part_of(base: PreTrainedModel, start: int, stop: int) -> Any:
    """Return a view of the layers `start:stop` that runs like the whole model and shares its weights.

    The final norm belongs to the last layer; a view without it returns the input of layer `stop`.
    """
    inner: Any = base.base_model
    part = copy(inner)
    part._modules = dict(inner._modules)
    part._modules["layers"] = nn.ModuleList(inner.layers[start:stop])
    if stop < len(inner.layers):
        part._modules[FAMILIES[base.config.model_type].norm] = nn.Identity()
    part.config = deepcopy(inner.config)
    part.config.num_hidden_layers = stop - start
    if getattr(inner.config, "layer_types", None) is not None:
        part.config.layer_types = inner.config.layer_types[start:stop]
    return part


def sliding_window(base: PreTrainedModel) -> int | None:
    """Return the window of the layers with sliding attention; None if there are none."""
    if "sliding_attention" not in (getattr(base.config, "layer_types", None) or ()):
        return None
    return int(base.config.sliding_window)
