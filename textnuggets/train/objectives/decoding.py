"""The objectives `autoencode`, `denoise` and `translate`: decode nuggets into a text (section 3.4)."""

from __future__ import annotations

import random
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor, nn

from textnuggets.analysis.bleu import Bleu
from textnuggets.analysis.teacher_forcing import TeacherForced
from textnuggets.data.batching import Collator, Documents, TokenBatches
from textnuggets.data.packed import PackedCorpus
from textnuggets.model.modeling import NuggetModel
from textnuggets.train.objectives.base import Objective, Step, decoding_step
from textnuggets.train.recipe import Recipe


class Decoding(Objective):
    """Decode the nuggets of a text into the text itself, the text before deletions, or its translation."""

    def __init__(self, model: NuggetModel, recipe: Recipe, train: PackedCorpus, dev: PackedCorpus) -> None:
        super().__init__(model, recipe, dev)
        count = min(len(dev), recipe.report.documents)
        self.dev_rows = random.Random(recipe.seed).sample(range(len(dev)), count)
        self.lengths = train.lengths
        self.dataset = Documents(train, recipe.objective.delete, model.tokenizer.all_special_ids, recipe.seed)
        self.collate = Collator(model.pad_id)

    def batches(self, process: int, processes: int) -> TokenBatches:
        """Return batches of documents of similar lengths within the token budget."""
        budget = self.recipe.optimizer.batch_tokens
        return TokenBatches(self.lengths, budget, **self.division(process, processes))

    def step(
        self, model: nn.Module, inputs: dict[str, Tensor], step: int, count: Any, processes: int
    ) -> Step:
        """Return the decoding loss at the ratio of this step: the mean over the target tokens of all processes."""
        objective, labels = self.recipe.objective, inputs["labels"]
        options: dict[str, Any] = {"ratio": self.ratio_at(step), "num_items_in_batch": count}
        if objective.hide:
            options["decoder_input_ids"] = self.hide(labels)
        classes = self.sample(labels, step)
        outputs = model(**inputs, **options, classes=classes)
        return decoding_step(outputs, labels, classes, inputs["attention_mask"].sum(), processes)

    def hide(self, labels: Tensor) -> Tensor:
        """Return the decoder input with random tokens replaced by the unknown token, except special tokens."""
        tokenizer = self.model.tokenizer
        shown = self.model.adapter.shift(labels)
        special = torch.tensor(tokenizer.all_special_ids, device=shown.device)
        hidden = torch.rand(shown.shape, device=shown.device) < self.recipe.objective.hide
        return shown.masked_fill(hidden & ~torch.isin(shown, special), tokenizer.unk_token_id)

    def measure(self, model: nn.Module, ratio: float, process: int, processes: int) -> Tensor:
        """Return the exact teacher-forced loss, correct targets and targets."""
        rows = self.dev_rows[process::processes]
        budget = self.recipe.optimizer.batch_tokens
        assert isinstance(self.collate, Collator)
        return torch.stack(TeacherForced.of(model, self.dev, rows, {"ratio": ratio}, self.collate, budget))

    def measure_more(self, ratio: float, process: int, processes: int) -> dict[str, float]:
        """Return BLEU of greedy decoding."""
        if not self.recipe.report.bleu_documents:
            return {}
        rows = self.dev_rows[: self.recipe.report.bleu_documents][process::processes]
        pairs = self.dev.texts(rows)
        nuggets = self.model.encode([source for source, _ in pairs], ratio=ratio)
        decoded = self.model.reconstruct(nuggets, num_beams=1)
        both = gather_object([(text, target) for text, (_, target) in zip(decoded, pairs, strict=True)])
        bleu = Bleu(language=self.recipe.data.languages[-1])
        return {"bleu": bleu.corpus([text for text, _ in both], [target for _, target in both])}
