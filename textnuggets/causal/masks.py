"""Attention masks with four dimensions, which transformers adds to the attention logits as they are.

Scores of nuggets are added in their columns: the residual connection of the paper (Eq. 5) for self-attention.
"""

from __future__ import annotations

import torch
from torch import Tensor

Masks = Tensor | dict[str, Tensor]  # one for all layers, or one per type of layer


def float_masks(
    visible: Tensor, bias: Tensor, distance: Tensor, window: int | None, dtype: torch.dtype
) -> Masks:
    """Return the masks `(batch, 1, rows, columns)`.

    Args:
        visible: `(batch, rows, columns)` whether a row attends to a column.
        bias: `(batch, rows or 1, columns)` what is added in each column: the score of a nugget, or 0.
        distance: `(batch, rows, columns)` number of positions from the column to the row.
        window: Window of the layers with sliding attention, if there are any.
        dtype: Type of the masks: that of the hidden states.
    """
    full = _mask(visible, bias, dtype)
    if window is None:
        return full
    return {"full_attention": full, "sliding_attention": _mask(visible & (distance < window), bias, dtype)}


def _mask(visible: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
    values = bias.to(dtype).expand(visible.shape)
    return values.masked_fill(~visible, torch.finfo(dtype).min)[:, None]


def streaming_masks(
    positions: Tensor, bias: Tensor, rows: int, window: int | None, dtype: torch.dtype
) -> Masks:
    """Return the masks of the last `rows` of the columns, which attend to themselves and to all columns before them.

    Args:
        positions: `(batch, columns)` position of each column in the text.
        bias: `(batch, columns)` score of each column.
        rows: Number of new tokens.
        window: Window of sliding attention, if any.
        dtype: Type of the masks.
    """
    columns = positions.shape[1]
    order = torch.arange(columns, device=positions.device)
    visible = (order <= order[-rows:, None]).expand(len(positions), rows, columns)
    distance = positions[:, -rows:, None] - positions[:, None, :]
    return float_masks(visible, bias[:, None], distance, window, dtype)


def gathering_masks(
    positions: Tensor, bias: Tensor, picked: Tensor, window: int | None, dtype: torch.dtype
) -> Masks:
    """Return the masks of picked tokens that are read again: each attends to the columns before it and to itself.

    Args:
        positions: `(batch, columns)` position of each column in the cache.
        bias: `(batch, columns)` score of each column.
        picked: `(batch, k)` positions of the picked tokens, whose own columns follow those of the cache.
        window: Window of sliding attention, if any.
        dtype: Type of the masks.
    """
    k = picked.shape[1]
    own = torch.eye(k, dtype=torch.bool, device=picked.device).expand(len(picked), k, k)
    visible = torch.cat([positions[:, None, :] < picked[:, :, None], own], -1)
    distance = picked[:, :, None] - torch.cat([positions, picked], -1)[:, None, :]
    bias = torch.cat([bias, bias.new_zeros(picked.shape)], -1)
    return float_masks(visible, bias[:, None], distance, window, dtype)


def document_masks(
    length: int, segment: int, picked: Tensor, scores: Tensor, window: int | None, dtype: torch.dtype
) -> Masks:
    """Return the masks of a whole document, whose tokens are followed by the picked ones, read again as nuggets.

    A token attends to the first token of the document, its own segment and the previous one, as far as they precede it,
    and to the nuggets of older segments. A nugget attends to the same, and to itself instead of its token.

    Args:
        length: Number of tokens n.
        segment: Number of tokens per segment.
        picked: `(batch, k)` positions of the nuggets.
        scores: `(batch, k)` their scores.
        window: Window of sliding attention, if any.
        dtype: Type of the masks.
    """
    tokens = torch.arange(length, device=picked.device).expand(len(picked), length)
    positions = torch.cat([tokens, picked], -1)
    is_nugget = torch.arange(positions.shape[1], device=picked.device) >= length
    segments = positions // segment
    rows, columns = positions[:, :, None], positions[:, None, :]
    recent = segments[:, None, :] >= segments[:, :, None] - 1
    before = torch.where(is_nugget[:, None], columns < rows, columns <= rows)
    own = torch.eye(positions.shape[1], dtype=torch.bool, device=picked.device)
    visible = torch.where(is_nugget[None, None, :], ~recent | own, before & (recent | (columns == 0)))
    bias = torch.cat([scores.new_zeros(tokens.shape), scores], -1)
    return float_masks(visible, bias[:, None].masked_fill(own, 0), rows - columns, window, dtype)
