"""Projection of nuggets to fewer dimensions, started at their principal components."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from textnuggets.model.modeling import NuggetModel


@torch.no_grad()
def fit_projection(model: NuggetModel, batches: Iterable[dict[str, Tensor]], whiten: float = 0.0) -> None:
    """Set W^V to the principal components of the nuggets of some texts, most important first.

    The components are those of unit vectors around the origin, so that the projection preserves cosines as well as any
    linear one does.

    Args:
        model: Model whose `config.dim` is at most the hidden size.
        batches: Inputs of `NuggetModel.forward`.
        whiten: Exponent of `principal_components`.
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
    projection.weight.copy_(principal_components(moments, projection.out_features, whiten))
    model.value = projection


def principal_components(moments: Tensor, dim: int, whiten: float = 0.0) -> Tensor:
    """Return the `(dim, d)` projection to the principal components of a `(d, d)` matrix of second moments.

    Args:
        moments: Sum of the outer products of vectors with themselves.
        dim: Number of components, most important first.
        whiten: Divide every component by its moment raised to this exponent, so that a few large ones do not decide
            every cosine: 0 changes nothing, 0.5 makes all components equally large.
    """
    sizes, components = torch.linalg.eigh(moments)  # ascending, one per column
    largest = components.T.flip(0)[:dim]
    scale = (sizes.flip(0)[:dim] / sizes[-1]).clamp(min=1e-9) ** -whiten
    return largest * scale[:, None]
