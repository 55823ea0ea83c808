"""The objective `causal`: continue long documents whose distant past is kept as nuggets in the cache.

The model learns from the next tokens and from its own base with full attention, whose distribution of the next token is
known without labels. Both losses are computed for a random sample of positions, because the logits of all would take
more time and memory than the sample gives up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from textnuggets.causal.modeling import CausalNuggetLM
from textnuggets.data.batching import NumberedBatches
from textnuggets.errors import InputError
from textnuggets.lm.corpus import TokenStreams
from textnuggets.train.objectives.base import Objective, Step
from textnuggets.train.recipe import Recipe

POSITIONS = 512  # of each document, at which the losses are computed


class Extract(NamedTuple):
    """Tokens `start:end` of a text."""

    text: int
    start: int
    end: int


@dataclass
class ExtractBatches(NumberedBatches[Extract]):
    """Batches of extracts of equal length, at random places of texts; long texts are drawn more often."""

    texts: Sequence[int]
    lengths: Sequence[int]
    longest: int
    rows: int

    def _batch(self, number: int) -> list[Extract]:
        random = np.random.default_rng([self.seed, number])
        lengths = np.array(self.lengths)
        drawn = random.choice(len(lengths), size=self.rows, p=lengths / lengths.sum())
        size = min(self.longest, *(int(lengths[row]) for row in drawn))
        starts = [int(random.integers(lengths[row] - size + 1)) for row in drawn]
        return [
            Extract(self.texts[row], start, start + size) for row, start in zip(drawn, starts, strict=True)
        ]


@dataclass
class Extracts(Dataset[Tensor]):
    """Dataset of the tokens of extracts."""

    streams: TokenStreams

    def __getitem__(self, extract: Extract) -> Tensor:
        ids = self.streams.text(extract.text)[extract.start : extract.end]
        return torch.from_numpy(ids.astype(np.int64))


def collate(examples: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return the tokens of a batch."""
    return {"input_ids": torch.stack(list(examples))}


class CausalLanguageModelling(Objective):
    """Continuation of documents, with distillation from full attention."""

    def __init__(self, lm: CausalNuggetLM, recipe: Recipe, train: TokenStreams, dev: TokenStreams) -> None:
        super().__init__(lm, recipe, dev)
        self.lm = lm
        self.by_segments = lm.device.type == "cpu"
        self.weight = recipe.objective.distill
        self.texts, self.lengths = _long_texts(train, recipe)
        self.dataset: Dataset[Any] = Extracts(train)
        self.collate = collate
        self.rows = recipe.optimizer.batch_tokens // recipe.data.max_tokens
        self.dev_extracts = self._dev_extracts(dev)

    def _dev_extracts(self, dev: TokenStreams) -> list[Extract]:
        """Return a fixed sample of dev texts, each from its beginning."""
        texts, lengths = _long_texts(dev, self.recipe)
        order = np.random.default_rng(self.recipe.seed).permutation(len(texts))
        chosen = order[: self.recipe.report.documents]
        return [Extract(texts[row], 0, min(lengths[row], self.recipe.data.max_tokens)) for row in chosen]

    def batches(self, process: int, processes: int) -> ExtractBatches:
        """Return batches of as many documents as fit into the token budget."""
        longest = self.recipe.data.max_tokens
        return ExtractBatches(
            self.texts, self.lengths, longest, self.rows, **self.division(process, processes)
        )

    def step(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        step: int,
        count: Any,  # noqa: ARG002
        processes: int,  # noqa: ARG002
    ) -> Step:
        """Return the mean loss over a sample of positions."""
        ids = inputs["input_ids"]
        sample = torch.Generator().manual_seed(hash((self.recipe.seed, step)) % 2**63)
        at = torch.randperm(ids.shape[1] - 1, generator=sample)[:POSITIONS].to(ids.device)
        teacher = self._teach(ids) if self.weight else None
        states = model(ids, self.ratio_at(step), by_segments=self.by_segments)
        loss, correct = self._loss(ids, states, teacher, at)
        targets = torch.tensor(float(len(ids) * len(at)), device=ids.device)
        tokens = torch.tensor(float(ids.numel()), device=ids.device)
        return Step(loss / targets, states, correct, targets, tokens)

    def _teach(self, ids: Tensor) -> Tensor:
        """Return the states of the base with full attention."""
        with self.lm.bare(), torch.no_grad():
            states: Tensor = self.lm.base.base_model(ids, use_cache=False).last_hidden_state
        return states

    def _loss(self, ids: Tensor, states: Tensor, teacher: Tensor | None, at: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and the number of correct tokens, summed over some positions of all documents."""
        logits = self.lm.project(states[:, at]).float().flatten(0, 1)
        following = ids[:, at + 1].flatten()
        log = logits.log_softmax(-1)
        loss = functional.nll_loss(log, following, reduction="sum") * (1 - self.weight)
        if teacher is not None:
            with torch.no_grad():
                goal = self.lm.project(teacher[:, at]).float().flatten(0, 1).log_softmax(-1)
            divergence = functional.kl_div(log, goal, reduction="sum", log_target=True)
            loss = loss + self.weight * divergence
        return loss, (logits.argmax(-1) == following).sum().float()

    def measure(self, model: nn.Module, ratio: float, process: int, processes: int) -> Tensor:
        """Return the loss of the training, summed over all positions of a fixed set of dev documents."""
        device = next(model.parameters()).device
        totals = torch.zeros(3, device=device)
        with torch.no_grad():
            for extract in self.dev_extracts[process::processes]:
                ids = Extracts(self.dev)[extract][None].to(device)
                teacher = self._teach(ids) if self.weight else None
                states = model(ids, ratio, by_segments=self.by_segments)
                for at in torch.arange(ids.shape[1] - 1, device=device).split(POSITIONS):
                    loss, correct = self._loss(ids, states, teacher, at)
                    totals += torch.stack([loss, correct, torch.tensor(float(len(at)), device=device)])
        return totals


def _long_texts(streams: TokenStreams, recipe: Recipe) -> tuple[list[int], list[int]]:
    """Return the numbers and lengths of the texts that are long enough to have something to compress."""
    least = max(recipe.data.min_tokens, 2 * recipe.model.segment + 2)
    lengths = [len(streams.text(number)) for number in range(len(streams))]
    texts = [number for number, length in enumerate(lengths) if length >= least]
    if not texts:
        raise InputError(
            f"{streams.path}: no text has {least} tokens, which is data.min_tokens or two segments: use longer texts."
        )
    return texts, [lengths[number] for number in texts]
