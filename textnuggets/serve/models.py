"""The served models, and the choice of a model for each request."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from textnuggets.errors import ConfigError
from textnuggets.model.budget import Budget
from textnuggets.model.interface import TextInterface
from textnuggets.model.windows import CutTexts
from textnuggets.search.index import NuggetIndex
from textnuggets.serve.middleware import Refused
from textnuggets.shipped import shipped_name

if TYPE_CHECKING:
    from textnuggets.model.modeling import NuggetModel

log = logging.getLogger("textnuggets.serve")


@dataclass(frozen=True)
class Served:
    """A model and the name it is served under."""

    name: str
    model: TextInterface

    @property
    def compares(self) -> bool:
        """Whether it was trained for vectors that can be compared."""
        return self.model.config.comparable

    @property
    def decodes(self) -> bool:
        """Whether it can decode vectors into text."""
        return self.model.can_decode

    @property
    def decoder(self) -> NuggetModel:
        """The model, if it can decode."""
        return cast("NuggetModel", self.model)

    @property
    def query_ratio(self) -> float | None:
        """Compression ratio of queries; None if it is the same as for documents."""
        return self.model.config.query_ratio

    def most_vectors(self, cut: CutTexts, texts: Iterable[str], ratio: float | None) -> list[int]:
        """Return the number of vectors of each text, exact unless the selector sets it by the content."""
        budget = Budget.of(ratio, None, self.model.config.ratio)
        selector = self.model.selector
        counts = []
        for text in texts:
            lengths = [len(window.encoding) for window in cut.windows[text]]
            if selector.counts:
                counts.append(sum(budget.share(lengths)))
            else:
                counts.append(len(lengths) if selector.pools else sum(lengths))
        return counts


def public_name(name: str) -> str:
    """Return the name a model is served under: its shipped name, the last part of its folder, or its hub id."""
    if (shipped := shipped_name(name)) is not None:
        return shipped
    return Path(name).resolve().name if Path(name).is_dir() else name


class Models:
    """The served models, in order.

    Args:
        models: Models by name.
        index: The served index, if any. Its model is added if it is not among `models`.
    """

    def __init__(self, models: Mapping[str, TextInterface], index: NuggetIndex | None = None) -> None:
        self._served = {name: Served(name, model) for name, model in models.items()}
        self.searching: Served | None = None
        """The model the index was built with."""
        if index is not None:
            same = (served for served in self if served.model is index.model)
            self.searching = next(same, None) or self._add(index.manifest.model, index.model)
        if not self._served:
            raise ConfigError("no model to serve: pass at least one.")
        self._warned: set[str] = set()

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    @property
    def first(self) -> Served:
        """The first model, the default when no other is chosen."""
        return next(iter(self))

    def _add(self, name: str, model: TextInterface) -> Served:
        short = public_name(name)
        served = Served(name if short in self._served else short, model)
        self._served[served.name] = served
        return served

    def named(self, name: str | None) -> Served | None:
        """Return the model named by a request, or None without a name; raise Refused if it is not served."""
        if name is None:
            return None
        if name not in self._served:
            known = ", ".join(map(repr, self._served))
            raise Refused(404, f"the model {name!r} is not served; choose one of {known}.", "model")
        return self._served[name]

    def any(self, name: str | None) -> Served:
        """Return the named model, or the first."""
        return self.named(name) or self.first

    def comparing(self, name: str | None) -> Served:
        """Return the named model; otherwise the index's model, the first one trained for comparing, or the first."""
        able = next((served for served in self if served.compares), self.first)
        return self.named(name) or self.searching or able

    def decoding(self, name: str | None) -> Served:
        """Return the named model, or the first with a decoder; raise Refused if it has none."""
        able = next((served for served in self if served.decodes), None)
        chosen = self.named(name) or able
        if chosen is None:
            raise Refused(
                422, "no served model has a decoder: start the server with --model reconstruct.", "model"
            )
        if not chosen.decodes:
            other = "start the server with --model reconstruct" if able is None else f"use {able.name!r}"
            raise Refused(422, f"the model {chosen.name!r} has no decoder: {other}.", "model")
        return chosen

    def warning(self, served: Served) -> str | None:
        """Return a warning if a model was not trained for comparing texts, else None; log it once per model."""
        if served.compares:
            return None
        able = next((other for other in self if other.compares), None)
        other = "serve 'search' for that" if able is None else f"use {able.name!r} for that"
        message = f"the model {served.name!r} is trained to reconstruct texts, not to compare them: {other}."
        if served.name not in self._warned:
            self._warned.add(served.name)
            log.warning("warning: %s", message)
        return message
