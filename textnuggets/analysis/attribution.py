"""Probability gain (section 5.3): how much likelier one nugget makes each token of the text."""

from __future__ import annotations

import torch
from torch import Tensor

from textnuggets.model.modeling import NuggetModel
from textnuggets.model.selection import nugget_count

ROWS = 32  # nuggets exposed in one pass of the decoder, each to a copy of its document
STATES = 256  # of the decoder, turned into logits together


def probability_gain(
    model: NuggetModel, ids: Tensor, labels: Tensor, ratio: float, alone: int | None = None
) -> tuple[Tensor, Tensor]:
    """g of one document, `(nuggets, targets)`, and the nuggets' token positions `(nuggets,)`.

    Args:
        model: A nugget model with a decoder, in evaluation mode.
        ids: `(n,)` the source's tokens.
        labels: `(targets,)` the target's.
        ratio: Compression ratio.
        alone: The number of one nugget; all of them by default.
    """
    mask = torch.ones_like(ids, dtype=torch.bool)[None]
    made = model.generate_nuggets(ids[None], mask, nugget_count(mask.sum(-1), ratio))
    nuggets, positions = made.nuggets[0], made.selection.positions[0]  # (k, d), (k,)
    if alone is not None:
        nuggets, positions = nuggets[alone : alone + 1], positions[alone : alone + 1]
    exposed = torch.cat([torch.zeros_like(nuggets[:1]), nuggets])[:, None]  # (1 + k, 1, d), nothing first
    probabilities = torch.cat(
        [_target_probabilities(model, part, labels) for part in exposed.split(ROWS)]
    )  # (1 + k, targets)
    return probabilities[1:] - probabilities[:1], positions


def _target_probabilities(model: NuggetModel, exposed: Tensor, labels: Tensor) -> Tensor:
    """p of every target token with the right ones before it, `(rows, targets)`, one nugget a row."""
    rows = labels.expand(len(exposed), -1)
    # Over a single key attention is 1 whatever its bias.
    bias = torch.zeros(len(exposed), 1, 1, 1, dtype=exposed.dtype, device=exposed.device)
    states = model.adapter.decode(exposed, bias, model.adapter.shift(rows))
    found = []
    # Logits of all rows at once would be hundreds of megabytes.
    for part, targets in zip(states.flatten(0, 1).split(STATES), rows.flatten().split(STATES), strict=True):
        logits = model.adapter.project(part).float()
        found.append(logits.gather(-1, targets[:, None]).squeeze(-1) - logits.logsumexp(-1))
    return torch.cat(found).exp().view(rows.shape)
