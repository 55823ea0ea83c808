"""Hugging Face's Trainer with objectives, metrics for each ratio and verified checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

from textnuggets.io.folders import put_in_place
from textnuggets.train import checkpoints
from textnuggets.train.build import TrainedModel
from textnuggets.train.callbacks import Report
from textnuggets.train.objectives.base import Objective
from textnuggets.train.recipe import Recipe

NO_DECAY = ("bias", "norm")  # parameters with these words in their names have no weight decay
STATE = "textnuggets.json"  # state of the Report in a checkpoint


class NuggetTrainer(Trainer):
    """Trainer of a nugget model or a language model, with the settings of a recipe."""

    def __init__(
        self,
        model: TrainedModel,
        recipe: Recipe,
        arguments: TrainingArguments,
        objective: Objective,
        report: Report,
    ) -> None:
        self.recipe, self.nugget_model, self.report = recipe, model, report
        self.objective: Objective = objective
        super().__init__(
            model=model,
            args=arguments,
            train_dataset=objective.dataset,
            eval_dataset=objective.dev,
            data_collator=objective.collate,
        )

    # ---------------------------------------------------------------- data, loss and optimizer

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the batches of the whole run."""
        return DataLoader(
            self.objective.dataset,
            batch_sampler=self.objective.batches(self.args.process_index, self.args.world_size),
            collate_fn=self.objective.collate,
            num_workers=self.args.dataloader_num_workers,
        )

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return the loss of the objective at this step."""
        result = self.objective.step(
            model, inputs, self.state.global_step, num_items_in_batch, self.accelerator.num_processes
        )
        self.report.count(result.correct, result.targets, result.tokens)
        return (result.loss, result.outputs) if return_outputs else result.loss

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Return AdamW, with the learning rate factors and weight decay of the recipe."""
        settings = self.recipe.optimizer
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, parameter in (model or self.model).named_parameters():  # type: ignore[union-attr]
            if parameter.requires_grad:
                # The longest matching name is the most specific.
                fitting = [part for part in settings.lr_scale if name.startswith(f"{part}.")]
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

    # ---------------------------------------------------------------- evaluation

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add accuracy and speed to the metrics of the Trainer, and write metrics.jsonl."""
        if "loss" in logs:
            logs.update(self.report.take(self.accelerator))
        with self._reporting_failure("the metrics"):
            super().log(logs, start_time)
            if self.is_world_process_zero():
                self.report.write(self.state.global_step, logs)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Evaluate on the dev corpora at every ratio, and save the model if it is the best."""
        started = time.monotonic()
        share = (self.args.process_index, self.args.world_size)
        ratios, metrics = self.recipe.report_ratios, {}
        with self.nugget_model.evaluating():
            for ratio in ratios:
                sums = self.objective.measure(self.model, ratio, *share)  # type: ignore[arg-type]
                loss, correct, targets = self.accelerator.reduce(sums).tolist()
                metrics[f"eval_loss_r{ratio:g}"] = loss / targets
                metrics[f"eval_{self.objective.accuracy}_r{ratio:g}"] = correct / targets
                if not self.is_fsdp_enabled:  # FSDP shards the weights that these metrics need
                    more = self.objective.measure_more(ratio, *share)
                    metrics |= {f"eval_{name}_r{ratio:g}": value for name, value in more.items()}
        metrics["eval_loss"] = sum(metrics[f"eval_loss_r{ratio:g}"] for ratio in ratios) / len(ratios)
        self.report.pause(time.monotonic() - started)
        self.log(metrics)
        self._keep_best(metrics["eval_loss"])
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _keep_best(self, loss: float) -> None:
        """Save the model if its loss is the lowest so far; stop if the patience is exhausted."""
        report, patience = self.report, self.recipe.report.patience
        if loss < report.best_loss:
            if self._write_together("best", "the best model", self._fill_best):
                report.best_loss, report.best_step, report.without_better = loss, self.state.global_step, 0
            return
        report.without_better += 1
        if patience and report.without_better >= patience:
            report.say(
                f"stopping: no lower dev loss in {report.without_better} evaluations since step {report.best_step}."
            )
            self.control.should_training_stop = self.control.should_save = True

    def _fill_best(self, folder: Path) -> None:
        self.save_model(str(folder), _internal_call=True)
        if self.is_world_process_zero():
            self._drop_pickle(folder)
            (folder / "recipe.toml").write_text(self.recipe.to_toml(), encoding="utf-8")

    @staticmethod
    def _drop_pickle(folder: Path) -> None:
        """Remove the pickled arguments that the Trainer writes into every folder; they are not needed."""
        (folder / "training_args.bin").unlink(missing_ok=True)

    # ---------------------------------------------------------------- checkpoints

    def _get_output_dir(self, trial: Any) -> str:  # noqa: ARG002
        return str(self.report.staging)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write a checkpoint to the staging folder, and rename it once it is complete."""
        started, step = time.monotonic(), self.state.global_step
        save = super()._save_checkpoint

        def fill(folder: Path) -> None:
            save(model, trial)
            if self.is_world_process_zero():
                self._drop_pickle(folder)
                self.report.save_state(folder / STATE, self.recipe)

        name = f"{checkpoints.PREFIX}{step}"
        written = self._write_together(
            name, f"the checkpoint of step {step}", fill, checkpoints.write_manifest
        )
        if written and self.is_world_process_zero():
            checkpoints.rotate(self.report.out, self.recipe.report.keep)
        self.report.pause(time.monotonic() - started)

    def _write_together(
        self,
        name: str,
        what: str,
        fill: Callable[[Path], None],
        finish: Callable[[Path], None] = lambda _: None,
    ) -> bool:
        """Write a folder of the run from all processes; return whether all of them succeeded.

        A failure is reported and does not stop the run; an earlier version of the folder is kept. All processes take the
        same steps whatever fails, because they would otherwise wait for each other forever.

        Args:
            name: Name of the folder.
            what: Description of the folder, for error messages.
            fill: Writes the files; called in every process.
            finish: Called in the main process after all processes have written their files.
        """
        report, is_main = self.report, self.is_world_process_zero()
        staged = report.staging / name
        with self._reporting_failure(what) as failed:
            if is_main:
                report.clear_staging()
                report.staging.mkdir()
        if done := self._all(not failed):
            with self._reporting_failure(what) as failed:
                fill(staged)
            done = self._all(not failed)
        if done:
            with self._reporting_failure(what) as failed:
                if is_main:
                    finish(staged)
                    put_in_place(staged, report.out / name)
            done = self._all(not failed)
        if is_main:
            report.clear_staging()
        return done

    def _all(self, fine: bool) -> bool:
        """Return whether `fine` is true in every process; all processes must call it."""
        flag = torch.tensor(float(fine), device=self.args.device)
        return bool(self.accelerator.reduce(flag) == self.accelerator.num_processes)

    @contextmanager
    def _reporting_failure(self, what: str) -> Iterator[list[Exception]]:
        """Report an error of writing files and suppress it; the yielded list then contains it."""
        failed: list[Exception] = []
        try:
            yield failed
        except (OSError, SafetensorError, RuntimeError) as error:
            # torch.save raises a plain RuntimeError if it cannot write a file.
            if isinstance(error, RuntimeError) and "writ" not in str(error):
                raise
            failed.append(error)
            reason = str(error).strip().split("\n")[0]
            self.report.say(f"{what} could not be written ({reason}); training continues.")
