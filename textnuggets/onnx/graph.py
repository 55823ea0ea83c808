"""The computation of nuggets as one graph for export: no shape and no branch depends on data.

Selection with sorting and scattering, as in `model/selection.py`, cannot be exported well. Here a selector returns a mask
`(batch, k, n)` of candidates for each slot; the best candidate of each slot is its argmax. `slots`, the numbers 0 to
k_max - 1, are an input, so that k_max is a dimension of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from textnuggets.errors import ConfigError
from textnuggets.model.modeling import NuggetModel

INPUTS = ("input_ids", "lengths", "counts", "slots")
OUTPUTS = ("vectors", "positions", "token_scores")
LOWEST = -1e30  # below any score; minus infinity would turn into NaN when multiplied


class NuggetGraph(nn.Module):
    """Encoder, scorer, selection, feedback, gathering and W^V of a nugget model, with padding on the right."""

    def __init__(self, model: NuggetModel) -> None:
        super().__init__()
        check_exportable(model)
        self.model = model
        self.choose = SELECTORS[model.selector.name]

    def forward(
        self, input_ids: Tensor, lengths: Tensor, counts: Tensor, slots: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return vectors `(batch, k_max, d)`, positions `(batch, k_max)` and the scores of all tokens `(batch, n)`.

        Args:
            input_ids: `(batch, n)`, padded on the right.
            lengths: `(batch,)` number of real tokens, n_i.
            counts: `(batch,)` k, from 1 to n_i.
            slots: `(k_max,)` the numbers 0 to k_max - 1.
        """
        model = self.model
        tokens = torch.arange(input_ids.shape[1], device=input_ids.device)
        mask = tokens < lengths[:, None]
        content = model._content(input_ids)
        kept = slots < counts[:, None]  # (batch, k_max)
        selected: list[tuple[Tensor, Tensor]] = []

        def score_and_select(hidden_states: Tensor) -> Tensor:
            scores = torch.zeros_like(content) if model.scorer is None else model.scorer(hidden_states)
            batch = Batch(scores, mask, lengths[:, None], counts[:, None], slots, content)
            chosen = (self.choose(batch) & kept[:, :, None]).to(hidden_states.dtype)
            selected.append((scores, chosen))
            return hidden_states if model.feedback is None else model.feedback(hidden_states, chosen.amax(1))

        states = model.adapter.encode(input_ids, mask, model.config.scorer_layer, score_and_select)
        ((scores, chosen),) = selected
        gathered = self._gather(states, chosen, mask, kept, content)
        return model.value(gathered), chosen.argmax(-1), scores

    def _gather(self, states: Tensor, chosen: Tensor, mask: Tensor, kept: Tensor, content: Tensor) -> Tensor:
        """Return X', as `model.pooling.Gather` does; `chosen` is `(batch, k_max, n)` with a single one per slot."""
        mode = self.model.config.gather
        token = chosen @ states
        if mode == "token":
            return token
        marks = chosen.amax(1)  # (batch, n)
        before = marks.cumsum(1) - marks
        owner = torch.minimum(before, kept.sum(1, keepdim=True) - 1)
        slots = torch.arange(kept.shape[1], device=mask.device)[:, None]
        members = (owner[:, None] == slots) & mask[:, None] & kept[:, :, None]
        if self.model.gather.attention is None:
            weights = members.to(states.dtype)
            if mode == "content":
                weights = weights * content.clamp(min=1e-12).sqrt()[:, None]
        else:
            logits = self.model.gather.attention(states).transpose(1, 2)  # (batch, 1, n)
            weights = logits.masked_fill(~members, LOWEST).softmax(-1) * members
        gathered = (weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)) @ states
        return gathered + token if mode == "both" else gathered


class Batch(NamedTuple):
    """What selection depends on."""

    scores: Tensor  # (batch, n)
    mask: Tensor  # (batch, n) True on real tokens
    lengths: Tensor  # (batch, 1) number of real tokens
    counts: Tensor  # (batch, 1) k
    slots: Tensor  # (k_max,) the numbers 0 to k_max - 1
    content: Tensor  # (batch, n)

    @property
    def places(self) -> Tensor:
        """`(n,)` the numbers 0 to n - 1."""
        return torch.arange(self.mask.shape[1], device=self.mask.device)

    def best_of(self, ranking: Tensor, chunk: Tensor) -> Tensor:
        """Return the highest-ranking token of each chunk; ties go to the earlier token."""
        members = (chunk[:, None] == self.slots[:, None]) & self.mask[:, None]  # (batch, k_max, n)
        best = ranking[:, None].masked_fill(~members, LOWEST).argmax(-1, keepdim=True)
        return best == self.places

    def equal_chunks(self) -> Tensor:
        """Return the `(batch, n)` chunk of each token, for k chunks of equal length."""
        return self.places * self.counts // self.lengths

    def in_order(self) -> Tensor:
        """Return a ranking in which later tokens rank above earlier ones."""
        return self.places.float().expand_as(self.scores)


def _learned(batch: Batch) -> Tensor:
    """Choose the k best tokens, in reading order; ties go to the earlier token."""
    ranked = batch.scores.masked_fill(~batch.mask, LOWEST)
    mine, other = ranked[:, :, None], ranked[:, None, :]
    better = (other > mine) | ((other == mine) & (batch.places < batch.places[:, None]))
    marks = (better.long().sum(-1) < batch.counts) & batch.mask
    place = marks.long().cumsum(1) - 1
    return (place[:, None] == batch.slots[:, None]) & marks[:, None]


def _spread(batch: Batch) -> Tensor:
    """Choose the best token of each of k equal chunks."""
    return batch.best_of(batch.scores, batch.equal_chunks())


def _even(batch: Batch) -> Tensor:
    """Choose the last token of each of k equal chunks."""
    return batch.best_of(batch.in_order(), batch.equal_chunks())


def _even_content(batch: Batch) -> Tensor:
    """Choose the last token of each of k chunks of similar content."""
    mask, counts, places = batch.mask, batch.counts, batch.places
    content = batch.content * mask
    weight = (content / content.sum(-1, keepdim=True) + mask / batch.lengths) / 2
    middle = weight.cumsum(-1) - weight / 2
    chunk = torch.minimum((middle * counts).long(), counts - 1)
    chunk = torch.maximum(chunk, counts - batch.lengths + places)
    rise = torch.where(places == 0, 0, chunk - places)
    # The minimum over the tokens up to each: ONNX has no cumulative minimum.
    lowest = torch.where(places <= places[:, None], rise[:, None, :], mask.shape[1]).amin(-1)
    return batch.best_of(batch.in_order(), lowest + places)


SELECTORS: dict[str, Callable[[Batch], Tensor]] = {
    "learned": _learned,
    "spread": _spread,
    "even": _even,
    "even_content": _even_content,
}
"""From a batch to a `(batch, k_max, n)` mask, True on the token of each slot."""


def check_exportable(model: NuggetModel) -> None:
    """Raise ConfigError if the selector of a model has no form for export."""
    if model.selector.name not in SELECTORS:
        raise ConfigError(
            f"the selector {model.selector.name!r} cannot be exported to ONNX: only {', '.join(SELECTORS)} can."
        )
