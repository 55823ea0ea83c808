"""Padding of rows of ids and truth values."""

from __future__ import annotations

import numpy as np
import torch

from textnuggets.model.padding import pad


def test_shorter_rows_are_filled_and_masked():
    ids, mask = pad([[5, 6, 7], np.array([8], dtype=np.int32), []], 1)
    assert ids.tolist() == [[5, 6, 7], [8, 1, 1], [1, 1, 1]]
    assert ids.dtype == torch.int64
    assert mask.tolist() == [[True, True, True], [True, False, False], [False, False, False]]


def test_truth_values_stay_truth_values():
    marks, _ = pad([[True, False], [True]], False)
    assert marks.dtype == torch.bool
    assert marks.tolist() == [[True, False], [True, False]]
