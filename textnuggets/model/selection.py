"""Which tokens become nuggets: how many (k = ceil(n * r)) and which (Eq. 3), by score or by rule.

A selector is one function from `Candidates` to `Selection`, registered under its own name:

    @selector
    def every_other(candidates: Candidates) -> Selection: ...

after which `NuggetConfig(selector="every_other")` uses it, in training and in encoding alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from textnuggets.errors import ConfigError

Count = TypeVar("Count", int, Tensor)

_UNIT = 10**12  # ratios are counted in steps of 1e-12 ...
_SLACK = 10**6  # ... and a product less than 1e-6 above a whole number is that number


@dataclass(frozen=True)
class Candidates:
    """What a selector may look at. All tensors but `count` are `(batch, n)`.

    `scores` are detached: gradients reach the scorer through the residual, never through the choice.
    """

    scores: Tensor
    mask: Tensor  # True on real tokens, False on padding
    count: Tensor  # (batch,) the k asked for
    punctuation: Tensor  # True on commas and periods
    sentence_ends: Tensor  # True on the last token of each sentence
    content: Tensor  # information of each token, in nats, for `even_content`; ones where it is not known


class Selection(NamedTuple):
    """The chosen tokens of a batch."""

    positions: Tensor  # (batch, k_max) ascending within each row
    kept: Tensor  # (batch, k_max) False where a text with fewer nuggets has run out

    def marks(self, n: int) -> Tensor:
        """`(batch, n)` True on the chosen tokens."""
        marks = torch.zeros(len(self.positions), n, dtype=torch.long, device=self.positions.device)
        # Unused slots point at some real position too: added up, they cannot unmark it.
        return marks.scatter_add_(1, self.positions, self.kept.long()) > 0


Selector = Callable[[Candidates], Selection]
SELECTORS: dict[str, Selector] = {}
LEARNED = ("learned", "spread")  # those that look at scores: a model has a scorer for them alone


def selector(function: Selector) -> Selector:
    """Register a selector under its function name."""
    SELECTORS[function.__name__] = function
    return function


def get_selector(name: str) -> Selector:
    """The registered selector of that name, or a ConfigError that lists them."""
    if name not in SELECTORS:
        raise ConfigError(f"selector must be one of {', '.join(SELECTORS)}; got {name!r}.")
    return SELECTORS[name]


def nugget_count(n: Count, ratio: float) -> Count:
    """k = ceil(n * r), at least 1 (section 3.1, "Choice of k").

    In whole numbers throughout: in floating point 100 * 0.15 is a little more than 15, and
    its ceiling 16. The same code serves Python ints and integer tensors on any device.
    """
    steps = round(ratio * _UNIT)
    k = (n * steps - _SLACK + _UNIT - 1) // _UNIT
    if isinstance(k, Tensor):
        return k.clamp(min=1)
    return max(k, 1)


def select_topk(scores: Tensor, mask: Tensor, count: Tensor) -> Selection:
    """Pick the k best-scoring real tokens of each text, in reading order (Eq. 3).

    Ties go to the earlier token; padding is never chosen.

    Args:
        scores: `(batch, n)` nugget logits.
        mask: `(batch, n)` True on real tokens, False on padding.
        count: `(batch,)` the k of each text.
    """
    count = torch.minimum(count, mask.sum(-1))
    best_first = scores.masked_fill(~mask, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    chosen = best_first[:, : int(count.max())]
    kept = torch.arange(chosen.shape[1], device=count.device) < count[:, None]
    # Unused slots sort last: every row is real nuggets in reading order, then padding.
    order = chosen.masked_fill(~kept, scores.shape[1]).argsort(dim=-1)
    return Selection(chosen.gather(-1, order), kept)


@selector
def learned(candidates: Candidates) -> Selection:
    """The paper's: top-k by the scorer (Eq. 3)."""
    return select_topk(candidates.scores, candidates.mask, candidates.count)


@selector
def spread(candidates: Candidates) -> Selection:
    """k equal chunks; of each the best-scoring token: learned, and no stretch of the text is left out."""
    return _best_of_chunks(candidates.scores.masked_fill(~candidates.mask, -torch.inf), candidates)


@selector
def chunking(candidates: Candidates) -> Selection:
    """k equal chunks; of each the last comma or period, else its last token (section 7.1)."""
    n = candidates.mask.shape[1]
    # Punctuation outranks every other token, and a later token an earlier one.
    return _best_of_chunks(
        torch.arange(n, device=candidates.mask.device) + candidates.punctuation * n, candidates
    )


@selector
def even_content(candidates: Candidates) -> Selection:
    """The last token of each of k chunks of about equal content: rare words and figures get more nuggets."""
    last = torch.arange(candidates.mask.shape[1], device=candidates.mask.device).expand_as(candidates.mask)
    return _best_of_chunks(last, candidates, _content_chunks(candidates))


@selector
def sentence_boundary(candidates: Candidates) -> Selection:
    """The last token of every sentence, however many there are (section 7.1)."""
    return _select_marked(candidates.sentence_ends & candidates.mask, candidates.mask)


@selector
def all_tokens(candidates: Candidates) -> Selection:
    """Every token: the paper's ColBART."""
    return _select_marked(candidates.mask, candidates.mask)


@selector
def mean(candidates: Candidates) -> Selection:
    """One vector a text, pooled over all its tokens (`pooling.mean_pool`): TSDAE's bottleneck.

    The vector stands for the whole text, so it takes the place of the last token.
    """
    last = candidates.mask.sum(-1, keepdim=True) - 1
    return Selection(last, torch.ones_like(last, dtype=torch.bool))


def _content_chunks(candidates: Candidates) -> Tensor:
    """Return `(batch, n)` the chunk of each token, so that every chunk has about the same content, and none is empty.

    A token counts half by its content and half as one of n: by content alone, chunks of frequent words get too long.
    """
    mask, n = candidates.mask, candidates.mask.sum(-1, keepdim=True)
    count = torch.minimum(candidates.count[:, None], n)
    content = candidates.content.float() * mask
    weight = (content / content.sum(-1, keepdim=True) + mask / n) / 2
    middle = (
        weight.cumsum(-1) - weight / 2
    )  # (batch, n) in [0, 1): the share of content before a token's middle
    chunk = torch.minimum((middle * count).long(), count - 1)
    place = torch.arange(mask.shape[1], device=mask.device)
    chunk = torch.maximum(chunk, count - n + place)  # enough tokens are left for all chunks that follow ...
    rise = chunk - place
    rise[:, 0] = 0
    return rise.cummin(-1).values + place  # ... and no chunk is left out


def _best_of_chunks(ranking: Tensor, candidates: Candidates, chunk: Tensor | None = None) -> Selection:
    """Of each of k chunks of a text, equal ones by default, the token that ranks highest; of equals the earliest."""
    mask, n = candidates.mask, candidates.mask.sum(-1, keepdim=True)
    count = torch.minimum(candidates.count[:, None], n)
    if chunk is None:
        chunk = (
            torch.arange(mask.shape[1], device=mask.device) * count // n
        )  # (batch, n) where each token lies
    k_max = int(count.max())
    best_first = ranking.argsort(dim=-1, descending=True, stable=True)
    place = best_first.argsort(dim=-1)  # (batch, n) 0 for the best token of the text
    first = torch.full((len(mask), k_max + 1), mask.shape[1], device=mask.device)
    first.scatter_reduce_(1, chunk.masked_fill(~mask, k_max), place, reduce="amin")
    kept = torch.arange(k_max, device=mask.device) < count
    return Selection(best_first.gather(1, first[:, :k_max].masked_fill(~kept, 0)).masked_fill(~kept, 0), kept)


def _select_marked(marks: Tensor, mask: Tensor) -> Selection:
    """All marked tokens; a text without any keeps its last token."""
    last = mask.sum(-1, keepdim=True) - 1
    bare = ~marks.any(-1, keepdim=True)
    marks = marks | (bare & (torch.arange(mask.shape[1], device=mask.device) == last))
    return select_topk(marks.float(), mask, marks.sum(-1))
