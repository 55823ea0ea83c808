"""95% intervals: the percentile bootstrap, and Wilson's interval of a share."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

SAMPLES = 1000  # bootstrap samples
PERCENTILES = (2.5, 97.5)


def bootstrap(
    values: NDArray[Any], statistic: Callable[[NDArray[Any]], NDArray[np.float64]], seed: int
) -> tuple[float, float]:
    """Return the 95% percentile bootstrap interval of a statistic.

    `scipy.stats.bootstrap` with `method="percentile"` gives the same interval up to rounding; this function needs
    no extra, and reproduces the published intervals exactly.

    Args:
        values: `(n, ...)` observations, which are resampled along the first axis.
        statistic: Maps `(samples, n, ...)` resampled observations to `(samples,)` values.
        seed: Seed of the resampling.
    """
    random = np.random.default_rng(seed)
    drawn = values[random.integers(len(values), size=(SAMPLES, len(values)))]
    low, high = np.percentile(statistic(drawn), PERCENTILES)
    return float(low), float(high)


def share_interval(count: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of the share `count / total`.

    It assumes independent observations, and has a width even if the count is 0 or the total.
    """
    z = NormalDist().inv_cdf(PERCENTILES[1] / 100)
    share = count / total
    centre = share + z**2 / (2 * total)
    spread = z * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    scale = 1 + z**2 / total
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
