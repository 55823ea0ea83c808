"""The scorer: how much context each token's hidden state holds (Eqs. 2 and 7)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Scorer(nn.Module):
    """`s = FFN(X^(l))` (Eqs. 2 and 7): a two-layer network, one logit a token."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(hidden_size, hidden_size)
        self.activation = nn.GELU()
        self.out = nn.Linear(hidden_size, 1)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """`(batch, n, d)` hidden states of layer l -> `(batch, n)` scores, in float32.

        The last step is computed in float32, too: half precision has too few digits to rank hundreds of
        tokens without ties. T5 hands on float32 states in a half-precision model, hence the first cast.
        """
        hidden = self.activation(self.hidden(hidden_states.to(self.hidden.weight.dtype)))
        with torch.autocast(hidden.device.type, enabled=False):
            scores = functional.linear(hidden.float(), self.out.weight.float(), self.out.bias.float())
        return scores.squeeze(-1)
