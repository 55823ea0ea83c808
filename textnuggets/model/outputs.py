"""Output types of the model's tensor-level methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor
from transformers.utils.generic import ModelOutput

from textnuggets.model.selection import Selection


class GeneratedNuggets(NamedTuple):
    """Nuggets of a batch, as returned by `NuggetModel.generate_nuggets`."""

    nuggets: Tensor  # (batch, k_max, d) Z; zero in unused slots
    scores: Tensor  # (batch, k_max) scores of the selected tokens
    selection: Selection
    token_scores: Tensor  # (batch, n) scores of all tokens


@dataclass
class NuggetOutput(ModelOutput):
    """Output of `NuggetModel.forward`."""

    loss: Tensor | None = None
    """Mean negative log-likelihood of the target tokens, if labels were given (section 3.4)."""
    logits: Tensor | None = None
    """`(batch, targets, vocabulary)`, if labels were given."""
    nuggets: Tensor | None = None
    """`(batch, k_max, d)` Z."""
    positions: Tensor | None = None
    """`(batch, k_max)` positions of the selected tokens."""
    kept: Tensor | None = None
    """`(batch, k_max)` False on padding."""
    token_scores: Tensor | None = None
    """`(batch, n)` scores s of all tokens."""
