"""Nugget feedback: an embedding that marks the selected tokens for the upper layers (Eq. 8)."""

from __future__ import annotations

from torch import Tensor, nn


class Feedback(nn.Module):
    """`X^(l) + E`, where E is one of two type embeddings per token, e^n (nugget) or e^o (other) (Eq. 8).

    Both are initialized to zero, so that an untrained nugget model encodes exactly like its backbone.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.types = nn.Embedding(2, hidden_size)  # row 0: other, row 1: nugget

    def forward(self, hidden_states: Tensor, is_nugget: Tensor) -> Tensor:
        """Return the `(batch, n, d)` input of layer l + 1, given hidden states and a `(batch, n)` nugget mask."""
        types: Tensor = self.types(is_nugget.long())
        return hidden_states + types
