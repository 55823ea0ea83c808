"""A criterion of transformers' `generate` for cancellation."""

from __future__ import annotations

from typing import Any

import torch
from transformers import StoppingCriteria

from textnuggets.model.cancelling import check_cancelled


class CheckCancelled(StoppingCriteria):
    """Criterion of transformers' `generate` that stops nothing, and raises Cancelled if it should end."""

    def __call__(self, input_ids: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """Return False for every row."""
        check_cancelled()
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
