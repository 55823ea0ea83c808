"""95% intervals: the percentile bootstrap, and Wilson's interval of a share."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import MissingExtraError

SAMPLES = 1000  # bootstrap samples
Z = NormalDist().inv_cdf(0.975)  # standard errors on either side of a 95% interval


def bootstrap(
    values: NDArray[Any], statistic: Callable[[NDArray[Any]], NDArray[np.float64]], seed: int
) -> tuple[float, float]:
    """Return the 95% percentile bootstrap interval of a statistic, computed by scipy.

    Args:
        values: `(n, ...)` observations, which are resampled along the first axis.
        statistic: Maps `(samples, n, ...)` resampled observations to `(samples,)` values.
        seed: Seed of the resampling.
    """
    try:
        from scipy import stats
    except ImportError as error:
        raise MissingExtraError("scipy", "evaluate", "a bootstrap interval") from error
    if len(values) == 1:  # every sample is the same, which scipy rejects
        (only,) = statistic(values[None])
        return float(only), float(only)
    found = stats.bootstrap(
        (np.arange(len(values)),),  # resample indices, since scipy's statistics take one axis
        lambda rows, axis: statistic(values[rows]),  # noqa: ARG005
        n_resamples=SAMPLES,
        method="percentile",
        random_state=np.random.default_rng(seed),
    )
    low, high = found.confidence_interval
    return float(low), float(high)


def share_interval(count: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of the share `count / total`.

    It assumes independent observations, and has a width even if the count is 0 or the total.
    """
    share = count / total
    centre = share + Z**2 / (2 * total)
    spread = Z * math.sqrt(share * (1 - share) / total + Z**2 / (4 * total**2))
    scale = 1 + Z**2 / total
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
