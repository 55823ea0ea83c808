"""Intervals, checked against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from textnuggets.evaluate.stats import SAMPLES, bootstrap, share_interval


def test_the_bootstrap_gives_the_interval_of_scipy():
    values = np.random.default_rng(1).random(50)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=SAMPLES, method="percentile", random_state=np.random.default_rng(0)
    )
    found = bootstrap(values, lambda drawn: drawn.mean(1), 0)
    assert found == pytest.approx(tuple(expected.confidence_interval), abs=1e-12)


def test_rows_are_resampled_whole():
    values = np.random.default_rng(1).random((20, 2))
    expected = stats.bootstrap(
        (values[:, 0], values[:, 1]),
        lambda a, b, axis: a.sum(axis) / b.sum(axis),
        paired=True, vectorized=True, n_resamples=SAMPLES, method="percentile", random_state=np.random.default_rng(0),
    )  # fmt: skip
    found = bootstrap(values, lambda drawn: drawn[..., 0].sum(1) / drawn[..., 1].sum(1), 0)
    assert found == pytest.approx(tuple(expected.confidence_interval), abs=1e-12)


def test_a_single_observation_has_an_interval_without_width():
    assert bootstrap(np.array([0.25]), lambda drawn: drawn.mean(1), 0) == (0.25, 0.25)


@pytest.mark.parametrize(("count", "total"), [(0, 100), (7, 100), (50, 100), (100, 100)])
def test_the_interval_of_a_share_is_wilsons(count, total):
    expected = stats.binomtest(count, total).proportion_ci(method="wilson")
    assert share_interval(count, total) == pytest.approx((expected.low, expected.high), abs=1e-12)
