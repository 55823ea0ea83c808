"""Mean-MaxSim for training: the values that an index computes, with gradients for the scores, too (straight-through)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from textnuggets.model.residual import residual_bias


class Side(NamedTuple):
    """Nuggets of the queries or of the documents of a batch."""

    vectors: Tensor  # (texts, k, d) normalized
    scores: Tensor  # (texts, k)
    kept: Tensor  # (texts, k) False on padding


def similarity(query: Side, document: Side) -> Tensor:
    """Return the mean-MaxSim of all queries and documents, `(queries, documents)`."""
    return (answers(query, document) * query_weights(query)[:, :, None]).sum(1)


def answers(query: Side, document: Side) -> Tensor:
    """Return the highest cosine of each query nugget in each document, `(queries, k, documents)`.

    The score of the document nugget with the highest cosine receives a straight-through gradient: it rises if the match is
    right, and falls if it is wrong.
    """
    q, d = query.vectors, document.vectors
    cosines = (q.flatten(0, 1) @ d.flatten(0, 1).T).view(*q.shape[:2], *d.shape[:2])
    best: Tensor = (cosines + score_bias(document)).amax(-1)
    return best


def score_bias(document: Side) -> Tensor:
    """Return the term that is added to the cosines with each document nugget, `(documents, k)`.

    It is zero in value, but its gradient is that of the scores; on padding it is the lowest finite value.
    """
    bias = residual_bias(document.scores, document.kept, "straight_through", 1.0, document.vectors.dtype)
    return bias[:, 0, 0]  # (documents, 1, 1, k) -> (documents, k)


def query_weights(query: Side) -> Tensor:
    """Return the weights of query nuggets, `(queries, k)`: equal, and 0 on padding.

    Their gradient is that of a softmax over the scores: the scores of nuggets that find the right document rise.
    """
    return equal_weights(query.kept) + zero_softmax(query.scores, query.kept)


def equal_weights(kept: Tensor) -> Tensor:
    """Return equal weights of the kept nuggets, `(texts, k)`, that sum to 1 for each text."""
    return kept.float() / kept.float().sum(1, keepdim=True)


def zero_softmax(scores: Tensor, kept: Tensor) -> Tensor:
    """Return zeros, `(texts, k)`, with the gradient of a softmax over the scores of the kept nuggets."""
    soft = scores.masked_fill(~kept, torch.finfo(scores.dtype).min).softmax(-1)
    return soft - soft.detach()
