"""LoRA weights in the layers above the scorer, by `peft`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from textnuggets.causal.families import FAMILIES, layers_of
from textnuggets.errors import MissingExtraError

NAME = "nuggets"  # of the adapter


def add_lora(base: PreTrainedModel, first: int, rank: int) -> None:
    """Add LoRA weights to the attention of the layers from `first` on, in place; they change nothing at first."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise MissingExtraError("peft", "causal", "a language model with nuggets in its cache") from error
    settings = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules=list(FAMILIES[base.config.model_type].attention),
        layers_to_transform=list(range(first, len(layers_of(base)))),
        layers_pattern="layers",
    )
    inject_adapter_in_model(settings, base, NAME)


@contextmanager
def without_lora(base: nn.Module) -> Iterator[None]:
    """Run the base model without its LoRA weights within the block."""
    found: list[Any] = [module for module in base.modules() if hasattr(module, "lora_A")]
    for module in found:
        module.enable_adapters(False)
    try:
        yield
    finally:
        for module in found:
            module.enable_adapters(True)
