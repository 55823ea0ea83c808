"""Padding of rows of different lengths to one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def pad(rows: Sequence[Sequence[int] | NDArray[np.integer]], value: int) -> tuple[Tensor, Tensor]:
    """Pad rows to one `(batch, n)` tensor; return it and a mask that is True on real values.

    Args:
        rows: Ids, or truth values.
        value: Id that fills the shorter rows; False for truth values.
    """
    longest = max(map(len, rows))
    padded = np.full((len(rows), longest), value, dtype=bool if isinstance(value, bool) else np.int64)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    lengths = torch.tensor([len(row) for row in rows])
    return torch.from_numpy(padded), torch.arange(longest) < lengths[:, None]
