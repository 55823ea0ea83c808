"""Probability gain (section 5.3): how much each nugget raises the probability of each token."""

from __future__ import annotations

import torch
from torch import Tensor

from textnuggets.model.budget import nugget_count
from textnuggets.model.modeling import NuggetModel

ROWS = 32  # nuggets per decoder pass, each with a copy of the document
STATES = 256  # decoder states projected to logits together


def probability_gain(
    model: NuggetModel, ids: Tensor, labels: Tensor, ratio: float, alone: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return g of one document, `(nuggets, targets)`, and the nuggets' token positions, `(nuggets,)`.

    The gain is over decoding without cross-attention.

    Args:
        model: Nugget model with a decoder, in evaluation mode.
        ids: `(n,)` token ids of the source.
        labels: `(targets,)` token ids of the target.
        ratio: Compression ratio.
        alone: Index of a single nugget to compute; all by default.
    """
    mask = torch.ones_like(ids, dtype=torch.bool)[None]
    made = model.generate_nuggets(ids[None], mask, nugget_count(mask.sum(-1), ratio))
    nuggets, positions = made.nuggets[0], made.selection.positions[0]  # (k, d), (k,)
    if alone is not None:
        nuggets, positions = nuggets[alone : alone + 1], positions[alone : alone + 1]
    exposed = nuggets[:, None]  # (k, 1, d)
    probabilities = torch.cat(
        [_target_probabilities(model, part, labels) for part in exposed.split(ROWS)]
    )  # (k, targets)
    return probabilities - _target_probabilities(model, None, labels), positions


def _target_probabilities(model: NuggetModel, exposed: Tensor | None, labels: Tensor) -> Tensor:
    """Return the teacher-forced probability of every target token, `(rows, targets)`, one nugget per row.

    Without nuggets there is one row, decoded without cross-attention.
    """
    bias = None
    rows = labels[None]
    if exposed is not None:
        rows = rows.expand(len(exposed), -1)
        # With a single key, attention is 1 regardless of the bias.
        bias = torch.zeros(len(exposed), 1, 1, 1, dtype=exposed.dtype, device=exposed.device)
    states = model.adapter.decode(exposed, bias, model.adapter.shift(rows))
    found = []
    # The logits of all rows together would take hundreds of megabytes.
    for part, targets in zip(states.flatten(0, 1).split(STATES), rows.flatten().split(STATES), strict=True):
        logits = model.adapter.project(part).float()
        found.append(logits.gather(-1, targets[:, None]).squeeze(-1) - logits.logsumexp(-1))
    return torch.cat(found).exp().view(rows.shape)
