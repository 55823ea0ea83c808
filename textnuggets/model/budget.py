"""Number of nuggets of a text: k = ceil(n * r), or a maximum shared among its windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, TypeVar

from textnuggets.checks import check_count, check_ratio
from textnuggets.errors import ConfigError, InputError

if TYPE_CHECKING:
    from torch import Tensor

Count = TypeVar("Count", int, "Tensor")

_UNIT = 10**12  # ratios are rounded to multiples of 1e-12
_SLACK = 10**6  # a product less than 1e-6 above an integer is rounded down to it


def nugget_count(n: Count, ratio: float) -> Count:
    """Return k = ceil(n * r), at least 1 (section 3.1, "Choice of k").

    Computed in integers, because in floating point 100 * 0.15 is slightly more than 15 and its ceiling is 16.
    Works for Python ints and for integer tensors on any device.
    """
    steps = round(ratio * _UNIT)
    k = (n * steps - _SLACK + _UNIT - 1) // _UNIT
    return max(k, 1) if isinstance(k, int) else k.clamp(min=1)


@dataclass(frozen=True)
class Budget:
    """Number of nuggets of a text: a ratio of its tokens, or a fixed maximum."""

    ratio: float
    max_vectors: int | None = None

    @classmethod
    def of(cls, ratio: float | None, max_vectors: int | None, default: float) -> Budget:
        """Return the validated budget of a call; without a ratio or maximum, the default ratio."""
        if max_vectors is None:
            return cls(default if ratio is None else check_ratio(ratio))
        if ratio is not None:
            raise ConfigError(f"give ratio or max_vectors, not both (got {ratio} and {max_vectors}).")
        return cls(1.0, check_count("max_vectors", max_vectors, at_least=1))

    def share(self, lengths: Sequence[int]) -> list[int]:
        """Return the k of each window of a text, given their numbers of tokens."""
        if self.max_vectors is None:
            return [nugget_count(n, self.ratio) for n in lengths]
        if self.max_vectors < len(lengths):
            raise InputError(
                f"a text of {sum(lengths):,} tokens has {len(lengths)} windows and needs at least one vector for "
                f"each, but max_vectors is {self.max_vectors}: raise it, or give a ratio."
            )
        # One each; the rest is distributed in proportion to the remaining tokens, rounded to keep the sum exact.
        rest = [n - 1 for n in lengths]
        spare, total = min(self.max_vectors, sum(lengths)) - len(lengths), max(1, sum(rest))
        edges = [spare * done // total for done in accumulate(rest, initial=0)]
        return [1 + after - before for before, after in pairwise(edges)]
