"""Selection of nuggets: how many tokens (k = ceil(n * r)) and which (Eq. 3), by score or by rule.

A selector is a function from `Candidates` to `Selection`, registered under its name:

    @selector
    def every_other(candidates: Candidates) -> Selection: ...

`NuggetConfig(selector="every_other")` then uses it, in both training and encoding. Arguments of the decorator declare
what the selector does and needs, such as `@selector(learned=True)` for one that uses scores; see `SelectorTraits`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, overload

import torch
from torch import Tensor

from textnuggets.errors import ConfigError
from textnuggets.model.encoder import SelectorTraits


@dataclass(frozen=True)
class Candidates:
    """Input of a selector. All tensors except `count` are `(batch, n)`.

    `scores` are detached: gradients reach the scorer through the residual, never through the selection.
    """

    scores: Tensor
    mask: Tensor  # True on real tokens, False on padding
    count: Tensor  # (batch,) requested k
    punctuation: Tensor  # True on commas and periods
    sentence_ends: Tensor  # True on the last token of each sentence
    content: Tensor  # information of each token in nats; ones unless the selector needs it


class Selection(NamedTuple):
    """The selected tokens of a batch."""

    positions: Tensor  # (batch, k_max) ascending within each row
    kept: Tensor  # (batch, k_max) False on padding

    def marks(self, n: int) -> Tensor:
        """Return a `(batch, n)` mask, True on the selected tokens."""
        marks = torch.zeros(len(self.positions), n, dtype=torch.long, device=self.positions.device)
        # Unused slots also point at a position; adding 0 does not unmark it.
        return marks.scatter_add_(1, self.positions, self.kept.long()) > 0


SelectorFunction = Callable[[Candidates], Selection]


@dataclass(frozen=True)
class Selector(SelectorTraits):
    """A registered selector function and its properties."""

    function: SelectorFunction = field(kw_only=True)

    def __call__(self, candidates: Candidates) -> Selection:
        """Select tokens."""
        return self.function(candidates)


SELECTORS: dict[str, Selector] = {}


@overload
def selector(function: SelectorFunction) -> SelectorFunction: ...
@overload
def selector(
    *,
    learned: bool = ...,
    counts: bool = ...,
    pools: bool = ...,
    needs_sentence_ends: bool = ...,
    needs_content: bool = ...,
) -> Callable[[SelectorFunction], SelectorFunction]: ...
def selector(
    function: SelectorFunction | None = None, **properties: bool
) -> SelectorFunction | Callable[[SelectorFunction], SelectorFunction]:
    """Register a function as a selector under its name; `properties` are fields of `Selector`."""

    def register(function: SelectorFunction) -> SelectorFunction:
        SELECTORS[function.__name__] = Selector(function.__name__, function=function, **properties)
        return function  # unchanged, so that models with the selector can be pickled

    return register if function is None else register(function)


def get_selector(name: str) -> Selector:
    """Return the registered selector of that name; raise ConfigError if there is none."""
    if name not in SELECTORS:
        raise ConfigError(f"selector must be one of {', '.join(SELECTORS)}; got {name!r}.")
    return SELECTORS[name]


def select_topk(scores: Tensor, mask: Tensor, count: Tensor) -> Selection:
    """Select the k best-scoring real tokens of each text, in reading order (Eq. 3).

    Ties go to the earlier token; padding is never selected.

    Args:
        scores: `(batch, n)` nugget logits.
        mask: `(batch, n)` True on real tokens, False on padding.
        count: `(batch,)` k of each text.
    """
    count = torch.minimum(count, mask.sum(-1))
    best_first = scores.masked_fill(~mask, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    chosen = best_first[:, : int(count.max())]
    kept = torch.arange(chosen.shape[1], device=count.device) < count[:, None]
    # Unused slots sort last: each row is nuggets in reading order, then padding.
    order = chosen.masked_fill(~kept, scores.shape[1]).argsort(dim=-1)
    return Selection(chosen.gather(-1, order), kept)


@selector(learned=True)
def learned(candidates: Candidates) -> Selection:
    """Select the k tokens with the highest scores, as in the paper (Eq. 3)."""
    return select_topk(candidates.scores, candidates.mask, candidates.count)


@selector(learned=True)
def spread(candidates: Candidates) -> Selection:
    """Select the best-scoring token of each of k equal chunks, so that every part of the text is represented."""
    return _best_of_chunks(candidates.scores.masked_fill(~candidates.mask, -torch.inf), candidates)


@selector
def even(candidates: Candidates) -> Selection:
    """Select the last token of each of k equal chunks; with the gather mode `mean`, nuggets are the chunk means."""
    return _best_of_chunks(_reading_order(candidates), candidates)


@selector
def chunking(candidates: Candidates) -> Selection:
    """Select the last comma or period of each of k equal chunks, else its last token (section 7.1)."""
    n = candidates.mask.shape[1]
    # Punctuation ranks above all other tokens, and later tokens above earlier ones.
    return _best_of_chunks(_reading_order(candidates) + candidates.punctuation * n, candidates)


@selector(needs_content=True)
def even_content(candidates: Candidates) -> Selection:
    """Select the last token of each of k chunks of similar content: rare words and numbers get more nuggets."""
    return _best_of_chunks(_reading_order(candidates), candidates, _content_chunks(candidates))


@selector(counts=False, needs_sentence_ends=True)
def sentence_boundary(candidates: Candidates) -> Selection:
    """Select the last token of every sentence, regardless of the count (section 7.1)."""
    return _select_marked(candidates.sentence_ends & candidates.mask, candidates.mask)


@selector(counts=False)
def all_tokens(candidates: Candidates) -> Selection:
    """Select every token, as in the paper's ColBART."""
    return _select_marked(candidates.mask, candidates.mask)


@selector(counts=False, pools=True)
def mean(candidates: Candidates) -> Selection:
    """Select the last token, as the position of one vector pooled over all tokens (TSDAE's bottleneck).

    The model computes the vector with `pooling.mean_pool`.
    """
    last = candidates.mask.sum(-1, keepdim=True) - 1
    return Selection(last, torch.ones_like(last, dtype=torch.bool))


def _reading_order(candidates: Candidates) -> Tensor:
    """Return a `(batch, n)` ranking in which later tokens rank above earlier ones."""
    return torch.arange(candidates.mask.shape[1], device=candidates.mask.device).expand_as(candidates.mask)


def _content_chunks(candidates: Candidates) -> Tensor:
    """Return the `(batch, n)` chunk index of each token, for nonempty chunks of similar content.

    The weight of a token is the average of its share of the content and of 1 / n: by content alone, chunks of frequent
    words get too long.
    """
    mask, n = candidates.mask, candidates.mask.sum(-1, keepdim=True)
    count = torch.minimum(candidates.count[:, None], n)
    content = candidates.content.float() * mask
    weight = (content / content.sum(-1, keepdim=True) + mask / n) / 2
    middle = weight.cumsum(-1) - weight / 2  # (batch, n) in [0, 1): weight up to the middle of each token
    chunk = torch.minimum((middle * count).long(), count - 1)
    index = torch.arange(mask.shape[1], device=mask.device)
    chunk = torch.maximum(chunk, count - n + index)  # leave at least one token for each later chunk
    rise = chunk - index
    rise[:, 0] = 0
    return rise.cummin(-1).values + index  # increase by at most one per token, so that no chunk is skipped


def _best_of_chunks(ranking: Tensor, candidates: Candidates, chunk: Tensor | None = None) -> Selection:
    """Select the highest-ranking token of each of k chunks, of equal length by default; ties go to the earlier token."""
    mask, n = candidates.mask, candidates.mask.sum(-1, keepdim=True)
    count = torch.minimum(candidates.count[:, None], n)
    if chunk is None:
        chunk = torch.arange(mask.shape[1], device=mask.device) * count // n  # (batch, n) chunk of each token
    k_max = int(count.max())
    best_first = ranking.argsort(dim=-1, descending=True, stable=True)
    rank = best_first.argsort(dim=-1)  # (batch, n) 0 for the best token of the text
    first = torch.full((len(mask), k_max + 1), mask.shape[1], device=mask.device)
    first.scatter_reduce_(1, chunk.masked_fill(~mask, k_max), rank, reduce="amin")
    kept = torch.arange(k_max, device=mask.device) < count
    return Selection(best_first.gather(1, first[:, :k_max].masked_fill(~kept, 0)).masked_fill(~kept, 0), kept)


def _select_marked(marks: Tensor, mask: Tensor) -> Selection:
    """Select all marked tokens, or the last token of a text without any."""
    last = mask.sum(-1, keepdim=True) - 1
    bare = ~marks.any(-1, keepdim=True)
    marks = marks | (bare & (torch.arange(mask.shape[1], device=mask.device) == last))
    return select_topk(marks.float(), mask, marks.sum(-1))
