"""From all hidden states of the last layer to the few that are kept: X' (Eq. 3)."""

from __future__ import annotations

from torch import Tensor

from textnuggets.model.selection import Selection


def gather_selected(hidden_states: Tensor, selection: Selection) -> Tensor:
    """X' = TopK(s, X): `(batch, n, d)` -> `(batch, k_max, d)`, zero in unused slots (Eq. 3)."""
    index = selection.positions[:, :, None].expand(-1, -1, hidden_states.shape[-1])
    return hidden_states.gather(1, index) * selection.kept[:, :, None]


def mean_pool(hidden_states: Tensor, mask: Tensor) -> Tensor:
    """The mean over a text's real tokens: `(batch, n, d)` -> `(batch, 1, d)` (TSDAE's bottleneck).

    Summed in float32: half precision loses the small terms of a long sum.
    """
    weights = mask[:, :, None].float()
    pooled = (hidden_states.float() * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True)
    return pooled.to(hidden_states.dtype)
