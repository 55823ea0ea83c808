"""Nugget feedback: the upper layers are told which tokens were picked (Eq. 8)."""

from __future__ import annotations

from torch import Tensor, nn


class Feedback(nn.Module):
    """`X^(l) + E`, where E holds one of two type embeddings, e^n (nugget) or e^o (other) (Eq. 8).

    Both start at zero, so that an untrained nugget model encodes exactly as its backbone does.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.types = nn.Embedding(2, hidden_size)  # row 0: other, row 1: nugget

    def forward(self, hidden_states: Tensor, is_nugget: Tensor) -> Tensor:
        """`(batch, n, d)` states and `(batch, n)` bool -> states for layer l + 1."""
        types: Tensor = self.types(is_nugget.long())
        return hidden_states + types
