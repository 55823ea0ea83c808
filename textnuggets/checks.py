"""Checks of settings, and the settings that encoding and search use, without torch or transformers."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Literal, get_args

from textnuggets.errors import ConfigError

GatherMode = Literal["token", "mean", "content", "attention", "both"]
ResidualMode = Literal["add", "straight_through", "off"]


class Settings:
    """Settings of any nugget model that encoding and search use."""

    ratio: float
    query_ratio: float | None
    objective: str | None

    def ratio_of_queries(self, ratio: float | None = None) -> float:
        """Return the ratio of queries: `query_ratio` if it is set, else `ratio` or the model's ratio."""
        if self.query_ratio is not None:
            return self.query_ratio
        return self.ratio if ratio is None else ratio

    @property
    def comparable(self) -> bool:
        """Whether the vectors can be compared: False only for an autoencoder."""
        return self.objective != "autoencode"


def check_ratio(ratio: float) -> float:
    """Return the ratio as a float; raise ConfigError if it is not in (0, 1]."""
    if isinstance(ratio, bool) or not isinstance(ratio, Real) or not 0 < ratio <= 1:
        raise ConfigError(f"ratio must lie in (0, 1], got {ratio!r}. 0.1 keeps one token in ten.")
    return float(ratio)


def check_count(name: str, value: int, at_least: int) -> int:
    """Return the value as an int; raise ConfigError if it is not an integer (Python or NumPy) of at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise ConfigError(f"{name} must be a whole number of at least {at_least}, got {value!r}.")
    return int(value)


def check_residual(mode: str) -> ResidualMode:
    """Return the mode; raise ConfigError if it is not a residual mode."""
    return check_choice("residual", mode, get_args(ResidualMode))


def check_flag(name: str, value: bool) -> bool:
    """Return the value; raise ConfigError if it is not True or False."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, got {value!r}.")
    return value


def check_kind(name: str, value: Any, kind: Any, described: str) -> Any:
    """Return the value; raise ConfigError if it is not of a type, as described."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name} must be {described}, got {value!r}.")
    return value


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> Any:
    """Return the value; raise ConfigError if it is not one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")
    return value
