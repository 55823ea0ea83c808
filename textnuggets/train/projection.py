"""Projection of nuggets to fewer dimensions, started at their principal components."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from textnuggets.model.modeling import NuggetModel


@torch.no_grad()
def fit_projection(model: NuggetModel, batches: Iterable[dict[str, Tensor]]) -> None:
    """Set W^V to the principal components of the nuggets of some texts, most important first.

    The components are those of unit vectors around the origin, so that the projection preserves cosines as well as any
    linear one does.

    Args:
        model: Model whose `config.dim` is below the hidden size.
        batches: Inputs of `NuggetModel.forward`.
    """
    projection, size = model.value, model.adapter.hidden_size
    model.value = nn.Linear(size, size, bias=False)
    nn.init.eye_(model.value.weight)
    moments = torch.zeros(size, size, dtype=torch.float64)
    with model.evaluating():
        for batch in batches:
            output = model(**batch)
            vectors = functional.normalize(output.nuggets[output.kept].double(), dim=-1)
            moments += vectors.T @ vectors
    _, components = torch.linalg.eigh(moments)  # ascending, one per column
    projection.weight.copy_(components.T.flip(0)[: model.config.dim])
    model.value = projection
