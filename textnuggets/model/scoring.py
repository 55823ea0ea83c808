"""The scorer: how much context each token's hidden state holds (Eqs. 2 and 7)."""

from __future__ import annotations

from torch import Tensor, nn


class Scorer(nn.Module):
    """`s = FFN(X^(l))` (Eqs. 2 and 7): a two-layer network, one logit a token."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(hidden_size, hidden_size)
        self.activation = nn.GELU()
        self.out = nn.Linear(hidden_size, 1)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """`(batch, n, d)` hidden states of layer l -> `(batch, n)` scores, in float32.

        Half precision has too few digits to rank hundreds of tokens without ties.
        """
        scores: Tensor = self.out(self.activation(self.hidden(hidden_states)))
        return scores.squeeze(-1).float()
