"""Base class of objectives: batches, loss and evaluation."""

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
    """Loss and counts of one batch."""

    loss: Tensor
    """Loss, to be averaged over processes."""
    outputs: Any
    """Outputs of the model."""
    correct: Tensor
    """Number of targets predicted correctly."""
    targets: Tensor
    """Number of targets."""
    tokens: Tensor
    """Number of encoded tokens."""


def decoding_step(
    outputs: Any, labels: Tensor, classes: SampledClasses | None, tokens: Tensor, processes: int
) -> Step:
    """Return loss and counts of a batch of decoded tokens."""
    targets = labels if classes is None else classes.place(labels)
    counted = labels != IGNORED
    return Step(
        # Gradients are averaged over processes, but the loss is already divided by the targets of all processes.
        loss=outputs.loss * processes,
        outputs=outputs,
        correct=(outputs.logits.detach().argmax(-1) == targets)[counted].sum(),
        targets=counted.sum(),
        tokens=tokens,
    )


class Objective(ABC):
    """Everything in training that depends on the objective."""

    accuracy = "token_accuracy"
    """Name of the share of correct targets in the metrics."""
    dataset: Dataset[Any]
    collate: Callable[[Sequence[Any]], dict[str, Any]]

    def __init__(self, model: Any, recipe: Recipe, dev: Any) -> None:
        self.model, self.recipe, self.dev = model, recipe, dev

    def ratio_at(self, step: int) -> float:
        """Return the ratio of a step, which is the same in every process and after resuming.

        Annealing decreases the ratio from `anneal_from` to the drawn one geometrically.
        """
        objective = self.recipe.objective
        drawn = random.Random(f"{self.recipe.seed} {step}").choice(self.recipe.ratios)
        if step >= objective.anneal_steps:
            return drawn
        start = max(objective.anneal_from, drawn)
        return start * (drawn / start) ** (step / objective.anneal_steps)

    def sample(self, labels: Tensor, step: int) -> SampledClasses | None:
        """Return the vocabulary sample of a step, the same after resuming; None for the whole vocabulary."""
        count = self.recipe.objective.sampled_softmax
        if not count:
            return None
        vocabulary = self.model.get_input_embeddings().num_embeddings
        generator = torch.Generator().manual_seed(hash((self.recipe.seed, step)) % 2**63)
        return sample_classes(labels, int(vocabulary), count, generator)

    def division(self, process: int, processes: int) -> dict[str, int]:
        """Return the arguments of `Batches` for the share of one process in the whole run."""
        optimizer = self.recipe.optimizer
        return {
            "steps": optimizer.steps,
            "seed": self.recipe.seed,
            "accumulate": optimizer.accumulate,
            "process": process,
            "processes": processes,
        }

    @abstractmethod
    def batches(self, process: int, processes: int) -> Sampler[list[Any]]:
        """Return the batches of one process for the whole run."""

    @abstractmethod
    def step(
        self, model: nn.Module, inputs: dict[str, Tensor], step: int, count: Any, processes: int
    ) -> Step:
        """Return the loss and counts of a batch.

        Args:
            model: Model, wrapped if there are several processes.
            inputs: Tensors from `collate`.
            step: Number of updates so far.
            count: Number of targets in all batches and processes of this update, from the Trainer.
            processes: Number of processes, over which gradients are averaged.
        """

    @abstractmethod
    def measure(self, model: nn.Module, ratio: float, process: int, processes: int) -> Tensor:
        """Return `(3,)` loss, correct targets and targets, summed over the dev documents of this process."""

    def measure_more(self, ratio: float, process: int, processes: int) -> dict[str, float]:  # noqa: ARG002
        """Return further metrics by name, the same in every process."""
        return {}
