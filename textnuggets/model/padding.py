"""Padding of rows of different lengths to one array or tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


def pad(rows: Sequence[Sequence[int] | NDArray[np.integer]], value: int) -> tuple[Tensor, Tensor]:
    """Pad rows to one tensor; otherwise as `pad_rows`."""
    import torch  # here, because encoding with ONNX pads too, and needs no torch

    padded, mask = pad_rows(rows, value)
    return torch.from_numpy(padded), torch.from_numpy(mask)


def pad_rows(
    rows: Sequence[Sequence[int] | NDArray[np.integer]], value: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Pad rows to one `(batch, n)` array; return it and a mask that is True on real values.

    Args:
        rows: Ids, or truth values.
        value: Id that fills the shorter rows; False for truth values.
    """
    lengths = np.array([len(row) for row in rows])
    longest = lengths.max()
    padded = np.full((len(rows), longest), value, dtype=bool if isinstance(value, bool) else np.int64)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return padded, np.arange(longest) < lengths[:, None]
