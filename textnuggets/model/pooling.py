"""Pooling of the last layer's hidden states into X', one vector per nugget (Eq. 3).

The paper keeps the hidden state of the selected token. A nugget can also pool its segment: the tokens after the
previous nugget up to its own token. Tokens after the last nugget belong to the last segment.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from textnuggets.checks import GatherMode
from textnuggets.model.selection import Selection


def gather_selected(hidden_states: Tensor, selection: Selection) -> Tensor:
    """Return X' = TopK(s, X): `(batch, n, d)` -> `(batch, k_max, d)`, zero in unused slots (Eq. 3)."""
    index = selection.positions[:, :, None].expand(-1, -1, hidden_states.shape[-1])
    return hidden_states.gather(1, index) * selection.kept[:, :, None]


def mean_pool(hidden_states: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over real tokens: `(batch, n, d)` -> `(batch, 1, d)` (TSDAE's bottleneck).

    The sum is in float32, because half precision loses the small terms of a long sum.
    """
    weights = mask[:, :, None].float()
    pooled = (hidden_states.float() * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True)
    return pooled.to(hidden_states.dtype)


def segments(selection: Selection, mask: Tensor) -> Tensor:
    """Return a `(batch, k_max, n)` mask, True on the tokens of each nugget's segment."""
    marks = selection.marks(mask.shape[1])
    before = marks.cumsum(1) - marks.long()  # number of nuggets before each token
    last = selection.kept.sum(1, keepdim=True) - 1
    owner = torch.minimum(before, last)
    slots = torch.arange(selection.kept.shape[1], device=mask.device)[None, :, None]
    return (owner[:, None, :] == slots) & mask[:, None, :] & selection.kept[:, :, None]


class Gather(nn.Module):
    """Pooling of the selected token, its segment, or both into a nugget."""

    def __init__(self, size: int, mode: GatherMode) -> None:
        super().__init__()
        self.mode = mode
        # Initialized to zero, where attention equals the mean.
        self.attention = nn.Linear(size, 1, bias=False) if mode == "attention" else None

    def forward(self, hidden_states: Tensor, selection: Selection, mask: Tensor, content: Tensor) -> Tensor:
        """Pool `(batch, n, d)` hidden states into `(batch, k_max, d)`, zero in unused slots.

        Args:
            hidden_states: States of the last layer.
            selection: The selected tokens.
            mask: `(batch, n)` True on real tokens.
            content: `(batch, n)` content of each token, at least 0, for the mode `content`.
        """
        if self.mode == "token":
            return gather_selected(hidden_states, selection)
        members = segments(selection, mask)  # (batch, k_max, n)
        states = hidden_states.float()  # half precision loses the small terms of a long sum
        if self.attention is None:
            weights = members.float()
            if self.mode == "content":
                # The root: by content itself, a rare token would outweigh all others of its segment. A segment of tokens
                # without content, such as special tokens, keeps their plain mean.
                weights = weights * content.float().clamp(min=1e-12).sqrt()[:, None]
        else:
            logits = self.attention(hidden_states).float().transpose(1, 2)  # (batch, 1, n)
            weights = logits.masked_fill(~members, torch.finfo(logits.dtype).min).softmax(-1) * members
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)
        gathered = (weights @ states).to(hidden_states.dtype)
        return gathered + gather_selected(hidden_states, selection) if self.mode == "both" else gathered
