"""Hugging Face's Trainer, with what nuggets need: ratios, sampled softmax, BLEU, lasting checkpoints."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import gather_object
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

from textnuggets.model.loss import IGNORED, sample_classes
from textnuggets.model.modeling import NuggetModel
from textnuggets.train import checkpoints
from textnuggets.train.batching import Collator, Documents, TokenBatches
from textnuggets.train.data import PackedCorpus
from textnuggets.train.recipe import Recipe
from textnuggets.train.reporting import Report

NO_DECAY = ("bias", "norm")  # parts of the names of parameters that weight decay leaves alone
STATE = "textnuggets.json"  # what a checkpoint has beside the Trainer's own files


class NuggetTrainer(Trainer):
    """Trains a NuggetModel as a recipe says."""

    def __init__(
        self,
        model: NuggetModel,
        recipe: Recipe,
        arguments: TrainingArguments,
        train: PackedCorpus,
        dev: PackedCorpus,
        report: Report,
    ) -> None:
        self.recipe, self.nugget_model, self.report = recipe, model, report
        objective = recipe.objective
        documents = Documents(train, objective.delete, model.tokenizer.all_special_ids, recipe.seed)
        collator = Collator(model.pad_id)
        super().__init__(
            model=model,
            args=arguments,
            train_dataset=documents,
            eval_dataset=dev,
            data_collator=collator,
        )
        self.dev, self.collate = dev, collator
        self.dev_rows = random.Random(recipe.seed).sample(
            range(len(dev)), min(len(dev), recipe.report.documents)
        )

    # ---------------------------------------------------------------- data

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The batches of the whole run; each process takes its own share of every one."""
        assert isinstance(self.train_dataset, Documents)
        optimizer = self.recipe.optimizer
        return DataLoader(
            self.train_dataset,
            batch_sampler=TokenBatches(
                self.train_dataset.corpus.lengths,
                optimizer.batch_tokens,
                optimizer.steps,
                self.recipe.seed,
                optimizer.accumulate,
                self.args.process_index,
                self.args.world_size,
            ),
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
        )

    # ---------------------------------------------------------------- one step

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

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The loss of decoding at this step's ratio; of all processes together it is a mean over tokens."""
        step, objective = self.state.global_step, self.recipe.objective
        labels = inputs["labels"]
        options: dict[str, Any] = {"ratio": self.ratio_at(step), "num_items_in_batch": num_items_in_batch}
        if objective.hide:
            options["decoder_input_ids"] = self._hide(labels)
        classes = None
        if objective.sampled_softmax:
            vocabulary = self.nugget_model.get_input_embeddings().num_embeddings
            generator = torch.Generator().manual_seed(hash((self.recipe.seed, step)) % 2**63)
            classes = sample_classes(labels, int(vocabulary), objective.sampled_softmax, generator)  # type: ignore[arg-type]
            options["classes"] = classes
        outputs = model(**inputs, **options)
        # Gradients are averaged over processes, while the loss is divided by the targets of all of them.
        loss = outputs.loss * self.accelerator.num_processes
        targets = labels if classes is None else classes.place(labels)
        counted = labels != IGNORED
        self.report.count(
            correct=(outputs.logits.detach().argmax(-1) == targets)[counted].sum(),
            targets=counted.sum(),
            tokens=inputs["attention_mask"].sum(),
        )
        return (loss, outputs) if return_outputs else loss

    def _hide(self, labels: Tensor) -> Tensor:
        """The decoder's input with some tokens made unknown; never the one it starts with."""
        shown = self.nugget_model.view.shift(labels)
        hidden = torch.rand(shown.shape, device=shown.device) < self.recipe.objective.hide
        hidden[:, 0] = False
        return shown.masked_fill(hidden, self.nugget_model.tokenizer.unk_token_id)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """AdamW, with a learning rate for each part the recipe names."""
        settings = self.recipe.optimizer
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, parameter in (model or self.model).named_parameters():  # type: ignore[union-attr]
            if parameter.requires_grad:
                name = name.removeprefix("module.")
                # The longest name that fits is the most exact.
                fitting = [part for part in settings.lr_scale if name.startswith(part)]
                scale = settings.lr_scale[max(fitting, key=len)] if fitting else 1.0
                decay = 0.0 if any(word in name for word in NO_DECAY) else settings.weight_decay
                groups.setdefault((scale, decay), []).append(parameter)
        self.optimizer = torch.optim.AdamW(
            [
                {"params": parameters, "lr": settings.lr * scale, "weight_decay": decay}
                for (scale, decay), parameters in groups.items()
            ],
            lr=settings.lr,
            betas=(settings.betas[0], settings.betas[1]),
            fused=True,
        )
        return self.optimizer

    # ---------------------------------------------------------------- measuring

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add token accuracy and speed to the Trainer's own figures, and write metrics.jsonl."""
        if "loss" in logs:
            logs.update(self.report.take(self.accelerator))
        super().log(logs, start_time)
        if self.is_world_process_zero():
            self.report.write(self.state.global_step, logs)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Loss, token accuracy and BLEU on the dev corpus at every ratio; the best model is kept."""
        started = time.monotonic()
        model = self.nugget_model
        metrics: dict[str, float] = {}
        with model.evaluating(), torch.no_grad():
            for ratio in self.recipe.report_ratios:
                loss, accuracy = self._teacher_forced(ratio)
                metrics |= {f"eval_loss_r{ratio:g}": loss, f"eval_token_accuracy_r{ratio:g}": accuracy}
                if self.recipe.report.bleu_documents:
                    metrics[f"eval_bleu_r{ratio:g}"] = self._bleu(ratio)
        ratios = self.recipe.report_ratios
        metrics["eval_loss"] = sum(metrics[f"eval_loss_r{ratio:g}"] for ratio in ratios) / len(ratios)
        self.report.pause(time.monotonic() - started)
        self.log(metrics)
        self._keep_best(metrics["eval_loss"])
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _own(self, rows: Sequence[int]) -> Sequence[int]:
        return rows[self.args.process_index :: self.args.world_size]

    def _teacher_forced(self, ratio: float) -> tuple[float, float]:
        """Exact loss and accuracy over the dev documents, of all processes."""
        totals = torch.zeros(3, dtype=torch.float64, device=self.args.device)
        for rows in self._dev_batches():
            batch = self._prepare_inputs(self.collate([self.dev[row] for row in rows]))
            output = self.model(**batch, ratio=ratio, num_items_in_batch=1)  # type: ignore[misc]
            counted = batch["labels"] != IGNORED
            correct = (output.logits.argmax(-1) == batch["labels"])[counted].sum()
            totals += torch.stack([output.loss.double(), correct.double(), counted.sum().double()])
        totals = self.accelerator.reduce(totals)
        loss, correct, count = totals.tolist()
        return loss / count, correct / count

    def _dev_batches(self) -> Iterator[list[int]]:
        rows = sorted(self._own(self.dev_rows), key=lambda row: -int(self.dev.lengths[row]))
        while rows:
            fit = max(1, self.recipe.optimizer.batch_tokens // int(self.dev.lengths[rows[0]]))
            yield rows[:fit]
            rows = rows[fit:]

    def _bleu(self, ratio: float) -> float:
        from sacrebleu.metrics.bleu import BLEU

        rows = self._own(self.dev_rows[: self.recipe.report.bleu_documents])
        pairs = self.dev.texts(rows)
        model = self.nugget_model
        nuggets = model.encode([source for source, _ in pairs], ratio=ratio, show_progress=False)
        decoded = model.reconstruct(nuggets, num_beams=1, show_progress=False)
        both = gather_object([(text, target) for text, (_, target) in zip(decoded, pairs, strict=True)])
        language = self.recipe.data.languages[-1][:2]
        bleu = BLEU(tokenize="zh" if language == "zh" else "13a")
        return float(bleu.corpus_score([text for text, _ in both], [[target for _, target in both]]).score)

    def _keep_best(self, loss: float) -> None:
        """Write the model if it is the best so far; stop if it has not been for too long."""
        report = self.report
        if loss < report.best_loss:
            report.best_loss, report.best_step, report.without_better = loss, self.state.global_step, 0
            with self._reporting_failure("the best model"):
                self._save_best()
            return
        report.without_better += 1
        if self.recipe.report.patience and report.without_better >= self.recipe.report.patience:
            report.say(
                f"no better dev loss in {report.without_better} evaluations since step {report.best_step}: done."
            )
            self.control.should_training_stop = self.control.should_save = True

    def _save_best(self) -> None:
        """All processes take part, as sharded weights need; the first one writes."""
        report, is_main = self.report, self.is_world_process_zero()
        report.clear_staging(is_main)
        self.accelerator.wait_for_everyone()
        staged = report.staging / "best"
        self.save_model(str(staged), _internal_call=True)
        if is_main:
            (staged / "training_args.bin").unlink(missing_ok=True)  # a pickle, which nobody needs
            (staged / "recipe.toml").write_text(self.recipe.to_toml(), encoding="utf-8")
            report.publish(staged)

    # ---------------------------------------------------------------- checkpoints

    def _get_output_dir(self, trial: Any) -> str:  # noqa: ARG002
        return str(self.report.staging)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write a checkpoint under another name, and give it its own when it is whole."""
        report, step = self.report, self.state.global_step
        staged = report.staging / f"{checkpoints.PREFIX}{step}"
        with self._reporting_failure(f"the checkpoint of step {step}"):
            report.clear_staging(self.is_world_process_zero())
            self.accelerator.wait_for_everyone()
            super()._save_checkpoint(model, trial)
            if self.is_world_process_zero():
                report.save_state(staged / STATE)
        self.accelerator.wait_for_everyone()
        if self.is_world_process_zero() and (staged / STATE).is_file():
            with self._reporting_failure(f"the checkpoint of step {step}"):
                checkpoints.write_manifest(staged)
                report.publish(staged)
                checkpoints.rotate(report.out, self.recipe.report.keep)

    @contextmanager
    def _reporting_failure(self, what: str) -> Iterator[None]:
        """A full disk is reported and does not end the run: what was saved before is still there."""
        try:
            yield
        except (OSError, RuntimeError, SafetensorError) as error:
            reason = str(error).strip().split("\n")[0]
            self.report.say(f"{what} could not be written ({reason}); going on without it.")
