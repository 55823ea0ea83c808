"""Residual connection: scores are added to every cross-attention, which trains the scorer (Eq. 5).

    a = (Q K + s) / sqrt(d)  =  Q K / sqrt(d)  +  s / sqrt(d)

The second term is a bias on the attention logits, the same for all targets, heads and layers.
By Eq. 6 the gradient of s is the sum of the gradients of all those logits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from textnuggets.checks import ResidualMode


def residual_bias(
    scores: Tensor, kept: Tensor, mode: ResidualMode, scale: float, dtype: torch.dtype
) -> Tensor:
    """Return the bias added to the cross-attention logits (Eq. 5).

    Args:
        scores: `(batch, k)` scores of the nuggets.
        kept: `(batch, k)` False on padding, whose bias is the lowest finite value.
        mode: `add` the scores; `straight_through` adds `s - stopgrad(s)`: zero in value, with
            the same gradient; `off` adds nothing, so the scorer learns nothing.
        scale: Factor of Q K in the backbone: `head_dim ** -0.5`, or 1 for T5.
        dtype: Dtype of the decoder; attention kernels require query and bias to have the same.

    Returns:
        `(batch, 1, 1, k)`.
    """
    if mode == "straight_through":
        scores = scores - scores.detach()
    elif mode == "off":
        scores = torch.zeros_like(scores)
    # The lowest finite value instead of -inf, because the softmax of a row of -inf is NaN.
    bias = (scores * scale).to(dtype).masked_fill(~kept, torch.finfo(dtype).min)
    return bias[:, None, None, :]
