"""What is learned: of which batches a step is made, what its loss is, and how a model is measured.

`Decoding` is the paper's section 3.4: the text itself, the whole of a part of it, or its translation.
`similar.Similar` learns similarity, `language_model.LanguageModelling` to go on with a text.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler

from textnuggets.model.loss import IGNORED, SampledClasses, sample_classes
from textnuggets.model.modeling import NuggetModel
from textnuggets.train.batching import Collator, Documents, TokenBatches
from textnuggets.train.data import PackedCorpus
from textnuggets.train.measuring import TeacherForced
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


class Decoding(Objective):
    """autoencode, denoise and translate: the nuggets are decoded into a text (section 3.4)."""

    def __init__(self, model: NuggetModel, recipe: Recipe, train: PackedCorpus, dev: PackedCorpus) -> None:
        super().__init__(model, recipe, dev)
        wanted = min(len(dev), recipe.report.documents)
        self.dev_rows = random.Random(recipe.seed).sample(range(len(dev)), wanted)
        self.lengths = train.lengths
        self.dataset = Documents(train, recipe.objective.delete, model.tokenizer.all_special_ids, recipe.seed)
        self.collate = Collator(model.pad_id)

    def batches(self, process: int, processes: int) -> TokenBatches:
        """Documents of like lengths, by token budget."""
        optimizer = self.recipe.optimizer
        return TokenBatches(
            self.lengths,
            optimizer.batch_tokens,
            optimizer.steps,
            self.recipe.seed,
            optimizer.accumulate,
            process,
            processes,
        )

    def step(
        self, model: nn.Module, inputs: dict[str, Tensor], step: int, count: Any, processes: int
    ) -> Step:
        """The loss of decoding at this step's ratio; of all processes together it is a mean over tokens."""
        objective, labels = self.recipe.objective, inputs["labels"]
        options: dict[str, Any] = {"ratio": self.ratio_at(step), "num_items_in_batch": count}
        if objective.hide:
            options["decoder_input_ids"] = self.hide(labels)
        classes = self.sample(labels, step)
        outputs = model(**inputs, **options, classes=classes)
        return decoding_step(outputs, labels, classes, inputs["attention_mask"].sum(), processes)

    def hide(self, labels: Tensor) -> Tensor:
        """The decoder's input with some tokens made unknown; never special ones, such as a language."""
        tokenizer = self.model.tokenizer
        shown = self.model.view.shift(labels)
        special = torch.tensor(tokenizer.all_special_ids, device=shown.device)
        hidden = torch.rand(shown.shape, device=shown.device) < self.recipe.objective.hide
        return shown.masked_fill(hidden & ~torch.isin(shown, special), tokenizer.unk_token_id)

    def measure(self, model: nn.Module, ratio: float, process: int, processes: int) -> Tensor:
        """Teacher-forced, exact."""
        rows = self.dev_rows[process::processes]
        budget = self.recipe.optimizer.batch_tokens
        assert isinstance(self.collate, Collator)
        return torch.stack(TeacherForced.of(model, self.dev, rows, {"ratio": ratio}, self.collate, budget))

    def measure_more(self, ratio: float, process: int, processes: int) -> dict[str, float]:
        """Greedy BLEU."""
        if not self.recipe.report.bleu_documents:
            return {}
        from sacrebleu.metrics.bleu import BLEU

        rows = self.dev_rows[: self.recipe.report.bleu_documents][process::processes]
        pairs = self.dev.texts(rows)
        nuggets = self.model.encode([source for source, _ in pairs], ratio=ratio)
        decoded = self.model.reconstruct(nuggets, num_beams=1)
        both = gather_object([(text, target) for text, (_, target) in zip(decoded, pairs, strict=True)])
        language = self.recipe.data.languages[-1][:2]
        bleu = BLEU(tokenize="zh" if language == "zh" else "13a")
        score = bleu.corpus_score([text for text, _ in both], [[target for _, target in both]]).score
        return {"bleu": float(score)}
