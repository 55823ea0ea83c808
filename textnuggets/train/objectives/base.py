"""What every objective has: batches, a loss and a measure."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler

from textnuggets.model.loss import IGNORED, SampledClasses, sample_classes
from textnuggets.train.recipe import Recipe


class Step(NamedTuple):
    """What one batch comes to."""

    loss: Tensor
    """To be averaged over processes."""
    outputs: Any
    correct: Tensor
    """How many targets were hit, of `targets`."""
    targets: Tensor
    tokens: Tensor
    """Tokens that were encoded."""


def decoding_step(
    outputs: Any, labels: Tensor, classes: SampledClasses | None, tokens: Tensor, processes: int
) -> Step:
    """What a batch of decoded tokens comes to."""
    targets = labels if classes is None else classes.place(labels)
    counted = labels != IGNORED
    return Step(
        # Gradients are averaged over processes, while the loss is divided by the targets of all of them.
        loss=outputs.loss * processes,
        outputs=outputs,
        correct=(outputs.logits.detach().argmax(-1) == targets)[counted].sum(),
        targets=counted.sum(),
        tokens=tokens,
    )


class Objective(ABC):
    """One way to train; the Trainer asks it for everything that differs between them."""

    accuracy = "token_accuracy"
    """What the share of targets that were hit is called."""
    dataset: Dataset[Any]
    collate: Callable[[Sequence[Any]], dict[str, Any]]

    def __init__(self, model: Any, recipe: Recipe, dev: Any) -> None:
        self.model, self.recipe, self.dev = model, recipe, dev

    def ratio_at(self, step: int) -> float:
        """The ratio of a step, the same on every process and after resuming.

        While it is annealed it falls from `anneal_from` to the drawn one, by the same factor each step.
        """
        objective = self.recipe.objective
        drawn = random.Random(f"{self.recipe.seed} {step}").choice(self.recipe.ratios)
        if step >= objective.anneal_steps:
            return drawn
        start = max(objective.anneal_from, drawn)
        return start * (drawn / start) ** (step / objective.anneal_steps)

    def sample(self, labels: Tensor, step: int) -> SampledClasses | None:
        """The part of the vocabulary that a step decides between, if not all of it; the same after resuming."""
        wanted = self.recipe.objective.sampled_softmax
        if not wanted:
            return None
        vocabulary = self.model.get_input_embeddings().num_embeddings
        generator = torch.Generator().manual_seed(hash((self.recipe.seed, step)) % 2**63)
        return sample_classes(labels, int(vocabulary), wanted, generator)

    @abstractmethod
    def batches(self, process: int, processes: int) -> Sampler[list[Any]]:
        """The batches of a whole run; each process takes its own share of every one."""

    @abstractmethod
    def step(
        self, model: nn.Module, inputs: dict[str, Tensor], step: int, count: Any, processes: int
    ) -> Step:
        """The loss of a batch.

        Args:
            model: The model, perhaps wrapped for several processes.
            inputs: What `collate` made.
            step: How many updates there were before.
            count: The Trainer's number of targets in all batches of all processes of this update.
            processes: How many there are; gradients are averaged over them.
        """

    @abstractmethod
    def measure(self, model: nn.Module, ratio: float, process: int, processes: int) -> Tensor:
        """`(3,)` loss, hits and targets, summed over this process's share of the dev documents."""

    def measure_more(self, ratio: float, process: int, processes: int) -> dict[str, float]:  # noqa: ARG002
        """Further figures, by name, the same on every process."""
        return {}
