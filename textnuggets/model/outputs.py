"""What the model's tensor-level methods return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor
from transformers.utils.generic import ModelOutput

from textnuggets.model.selection import Selection


class GeneratedNuggets(NamedTuple):
    """What the nugget generator makes of a batch."""

    nuggets: Tensor  # (batch, k_max, d) Z; zero in unused slots
    scores: Tensor  # (batch, k_max) of the chosen tokens
    selection: Selection
    token_scores: Tensor  # (batch, n) of all tokens


@dataclass
class NuggetOutput(ModelOutput):
    """What `NuggetModel.forward` returns."""

    loss: Tensor | None = None
    """Mean negative log-likelihood of the target tokens, if labels were given (section 3.4)."""
    logits: Tensor | None = None
    """`(batch, targets, vocabulary)`, if labels were given."""
    nuggets: Tensor | None = None
    """`(batch, k_max, d)` Z."""
    positions: Tensor | None = None
    """`(batch, k_max)` the chosen tokens."""
    kept: Tensor | None = None
    """`(batch, k_max)` False on padding."""
    token_scores: Tensor | None = None
    """`(batch, n)` s, of every token."""
