"""Scorer: one score per token, from its hidden state (Eqs. 2 and 7)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Scorer(nn.Module):
    """`s = FFN(X^(l))` (Eqs. 2 and 7): a two-layer network with one logit per token."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(hidden_size, hidden_size)
        self.activation = nn.GELU()
        self.out = nn.Linear(hidden_size, 1)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Return float32 scores `(batch, n)` of the hidden states `(batch, n, d)` of layer l.

        The output layer is computed in float32, because half precision is too coarse to rank hundreds of
        tokens without ties. The first cast is for T5, whose half-precision models return float32 states.
        """
        hidden = self.activation(self.hidden(hidden_states.to(self.hidden.weight.dtype)))
        with torch.autocast(hidden.device.type, enabled=False):
            scores = functional.linear(hidden.float(), self.out.weight.float(), self.out.bias.float())
        return scores.squeeze(-1)
