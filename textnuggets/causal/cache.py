"""NuggetCache: a cache for transformers that keeps two segments whole, and of older ones the nuggets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from textnuggets.causal.config import CausalConfig
from textnuggets.causal.masks import Masks, streaming_masks
from textnuggets.checks import check_ratio
from textnuggets.errors import ConfigError


class Reader(Protocol):
    """Protocol of the language models that a cache works with."""

    config: CausalConfig
    depth: int
    window: int | None

    @property
    def dtype(self) -> torch.dtype:
        """Type of the hidden states."""

    def pick(self, hidden: Tensor, ratio: float, is_first: bool) -> tuple[Tensor, Tensor]:
        """Return positions in a segment, and scores, of its nuggets."""

    def gather(self, cache: NuggetCache, hidden: Tensor, positions: Tensor) -> None:
        """Read picked tokens again, so that the layers from l on take up their segment."""


class Waiting(NamedTuple):
    """Nuggets of the previous segment, which stand for it when it is dropped."""

    states: list[tuple[Tensor, Tensor]]
    """Keys and values of each layer."""
    positions: Tensor
    scores: Tensor


class NuggetLayer(DynamicLayer):
    """Keys and values of one layer."""

    keys: Tensor
    values: Tensor
    reading_again = False
    """True while new keys and values are put aside instead of appended."""
    aside: tuple[Tensor, Tensor]

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return the keys and values to attend to: those in the cache, and the new ones."""
        if not self.reading_again:
            return super().update(keys, values)
        self.aside = (keys, values)
        return torch.cat([self.keys, keys], -2), torch.cat([self.values, values], -2)

    def columns(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values at `(batch, k)` columns."""
        wide = index[:, None, :, None]
        return self.keys.take_along_dim(wide, 2), self.values.take_along_dim(wide, 2)

    def replace(self, before: int, inserted: tuple[Tensor, Tensor], after: int) -> None:
        """Replace the columns `before:after`."""
        keys, values = inserted
        self.keys = torch.cat([self.keys[:, :, :before], keys, self.keys[:, :, after:]], 2)
        self.values = torch.cat([self.values[:, :, :before], values, self.values[:, :, after:]], 2)


class NuggetCache(Cache):
    """Keys and values of a growing text: the first token, nuggets of older segments, and two segments whole.

    Pass it as `past_key_values` to the base model of a `CausalNuggetLM`, also in transformers' own `generate`. All rows
    of a batch have equally many tokens, without padding.

    Args:
        lm: Language model.
        ratio: Compression ratio; the model's by default.
        layers: Number of layers, from the lowest; all by default.
    """

    layers: list[NuggetLayer]  # type: ignore[assignment]

    def __init__(self, lm: Reader, ratio: float | None = None, layers: int | None = None) -> None:
        super().__init__(layers=[NuggetLayer() for _ in range(layers or lm.depth)])
        self.lm = lm
        self.ratio = check_ratio(lm.config.ratio if ratio is None else ratio)
        self.length = 0
        """Number of tokens in the text."""
        self.current = 0
        """Number of tokens in the current segment."""
        self.positions: Tensor | None = None
        """`(batch, columns)` position in the text of each column."""
        self.bias: Tensor | None = None
        """`(batch, columns)` score of each nugget; 0 elsewhere."""
        self.hidden: list[Tensor] = []
        """Hidden states of layer l of the current segment."""
        self.picked: list[tuple[Tensor, Tensor]] = []
        """Positions and scores of the nuggets of each finished segment, if only the lower layers are cached."""
        self.waiting: Waiting | None = None

    # ---------------------------------------------------------------- what transformers asks

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """Return the number of tokens in the text, from which the next position follows."""
        return self.length

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Select rows, for beam search."""
        self._each_row(lambda rows: rows.index_select(0, beam_idx.to(rows.device)))

    def repeated(self, count: int) -> NuggetCache:
        """Return a copy in which every row is repeated, for beam search."""
        copied = NuggetCache(self.lm, self.ratio, len(self.layers))
        for name in ("length", "current", "positions", "bias", "hidden", "waiting"):
            setattr(copied, name, getattr(self, name))
        for layer, own in zip(copied.layers, self.layers, strict=True):
            if own.is_initialized:
                layer.lazy_initialization(own.keys, own.values)
                layer.keys, layer.values = own.keys, own.values
        copied.batch_repeat_interleave(count)
        return copied

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row."""
        self._each_row(lambda rows: rows.repeat_interleave(repeats, 0))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Select rows."""
        self._each_row(lambda rows: rows[indices])

    def crop(self, tokens_to_remove: int) -> None:
        """Raise ConfigError: dropped tokens cannot be restored."""
        raise ConfigError(
            f"a NuggetCache cannot remove {abs(tokens_to_remove)} tokens: they may be compressed."
        )

    def reset(self) -> None:
        """Forget the text."""
        self.__init__(self.lm, self.ratio, len(self.layers))  # type: ignore[misc]

    def _each_row(self, change: Callable[[Tensor], Tensor]) -> None:
        if self.positions is None or self.bias is None:
            return
        for layer in self.layers:
            layer.keys, layer.values = change(layer.keys), change(layer.values)
        self.positions, self.bias = change(self.positions), change(self.bias)
        self.hidden = [change(rows) for rows in self.hidden]
        if self.waiting is not None:
            states, positions, scores = self.waiting
            pairs = [(change(keys), change(values)) for keys, values in states]
            self.waiting = Waiting(pairs, change(positions), change(scores))

    # ---------------------------------------------------------------- reading

    @property
    def columns(self) -> int:
        """Number of keys and values per layer, without those of nuggets whose segment is still whole."""
        return 0 if self.positions is None else self.positions.shape[1]

    @property
    def nbytes(self) -> int:
        """Size of all keys and values."""
        pairs = [(layer.keys, layer.values) for layer in self.layers if layer.is_initialized]
        pairs += self.waiting.states if self.waiting else []
        return sum(keys.nbytes + values.nbytes for keys, values in pairs)

    @property
    def room(self) -> int:
        """Number of tokens that the current segment can still take; 0 if it is full."""
        return self.lm.config.segment - self.current

    def admit(self, ids: Tensor) -> tuple[Tensor, Masks]:
        """Return the positions and masks of the next `(batch, n)` tokens, at most as many as there is room for."""
        rows, count = ids.shape
        new = torch.arange(self.length, self.length + count, device=ids.device).expand(rows, count)
        none = torch.zeros(rows, count, device=ids.device)
        self.positions = new if self.positions is None else torch.cat([self.positions, new], 1)
        self.bias = none if self.bias is None else torch.cat([self.bias, none], 1)
        self.length += count
        self.current += count
        return new, streaming_masks(self.positions, self.bias, count, self.lm.window, self.lm.dtype)

    # ---------------------------------------------------------------- compressing

    def turn(self) -> None:
        """Finish the current segment, which is full: pick its nuggets, and drop all but those of the previous one."""
        assert self.positions is not None
        assert self.bias is not None
        size = self.lm.config.segment
        hidden = torch.cat(self.hidden, 1)
        inside, scores = self.lm.pick(hidden, self.ratio, self.length == size)
        positions = inside + self.length - size
        begin = self.columns - size
        if len(self.layers) == self.lm.depth:
            with self._reading_again():
                self.lm.gather(self, hidden.take_along_dim(inside[:, :, None], 1), positions)
        else:
            self.picked.append((positions, scores))
        states = [
            layer.aside if index >= self.lm.config.scorer_layer else layer.columns(begin + inside)
            for index, layer in enumerate(self.layers)
        ]
        if self.waiting is not None:
            self._drop(begin)
        self.waiting, self.hidden, self.current = Waiting(states, positions, scores), [], 0

    @contextmanager
    def _reading_again(self) -> Iterator[None]:
        for layer in self.layers:
            layer.reading_again = True
        try:
            yield
        finally:
            for layer in self.layers:
                layer.reading_again = False

    @property
    def is_reading_again(self) -> bool:
        """True if tokens are read again as nuggets."""
        return bool(self.layers[-1].reading_again)

    def _drop(self, begin: int) -> None:
        """Replace the previous segment, which ends at column `begin`, by its nuggets; keep the first token of a text."""
        assert self.waiting is not None
        assert self.positions is not None
        assert self.bias is not None
        size = self.lm.config.segment
        kept = max(begin - size, 1)
        for layer, inserted in zip(self.layers, self.waiting.states, strict=True):
            layer.replace(kept, inserted, begin)
        _, positions, scores = self.waiting
        self.positions = torch.cat([self.positions[:, :kept], positions, self.positions[:, begin:]], 1)
        self.bias = torch.cat([self.bias[:, :kept], scores, self.bias[:, begin:]], 1)
