"""Progress output, metrics.jsonl, the best loss of a run, and a clean stop on a signal."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from textnuggets.io.disk import append
from textnuggets.io.files import replacing
from textnuggets.train.recipe import Recipe

LINE_SECONDS = 10.0  # between two progress lines if stderr is not a terminal


class Report:
    """Metrics of a run: counted, written to metrics.jsonl and shown on stderr."""

    def __init__(self, out: Path, steps: int) -> None:
        self.out, self.steps = out, steps
        self.staging = out / ".unfinished"
        self.is_main = os.environ.get("RANK", "0") == "0"
        self.best_loss, self.best_step, self.without_better = math.inf, 0, 0
        self.accuracy = "token_accuracy"  # name of the share of correct targets
        self.has_counted = False
        """Whether a batch has been counted."""
        self._counts: list[Tensor] = []
        self._interval = time.monotonic()
        self._last_line = 0.0
        self._logged = 0  # step of the last metrics
        self._bar: Any = None

    # ---------------------------------------------------------------- metrics of an interval

    def count(self, correct: Tensor, targets: Tensor, tokens: Tensor) -> None:
        """Add a batch: the number of correct targets, of all targets and of encoded tokens."""
        self.has_counted = True
        self._counts.append(torch.stack([correct, targets, tokens]))

    def pause(self, seconds: float) -> None:
        """Exclude time that was not spent on training from the speed."""
        self._interval += seconds

    def take(self, accelerator: Any) -> dict[str, float]:
        """Return the metrics since the last call, summed over all processes."""
        correct, targets, tokens = accelerator.reduce(torch.stack(self._counts).sum(0)).tolist()
        seconds = time.monotonic() - self._interval
        self._counts, self._interval = [], time.monotonic()
        return {
            self.accuracy: correct / max(1.0, targets),
            "tokens": tokens,
            "tokens_per_second": tokens / max(seconds, 1e-9),
            "seconds": seconds,
        }

    # ---------------------------------------------------------------- output

    @property
    def metrics(self) -> Path:
        """Path of metrics.jsonl."""
        return self.out / "metrics.jsonl"

    def write(self, step: int, logs: dict[str, float]) -> None:
        """Append a line to metrics.jsonl, and show progress."""
        record = {key: _rounded(value) for key, value in logs.items() if key not in ("epoch", "total_flos")}
        append(self.metrics, json.dumps({"step": step, **record}) + "\n")
        if "eval_loss" in logs:
            shown = ", ".join(
                f"{key.removeprefix('eval_')} {value:.4g}"
                for key, value in logs.items()
                if key.startswith("eval_")
            )
            self.say(f"step {step:,}: dev {shown}")
        elif "loss" in logs:
            self._show(step, logs)

    def _show(self, step: int, logs: dict[str, float]) -> None:
        """Show progress: a bar on a terminal, or else a line every `LINE_SECONDS`."""
        pace = logs["seconds"] / max(1, step - self._logged)
        self._logged = step
        shown = f"loss {logs['loss']:.4f}, {self.accuracy.replace('_', ' ')} {logs[self.accuracy]:.1%}"
        speed = f"{logs['tokens_per_second']:,.0f} tokens/s"
        if sys.stderr.isatty():
            from tqdm import tqdm

            if self._bar is None:
                self._bar = tqdm(desc="train", total=self.steps, initial=step, unit="step")
            self._bar.update(step - self._bar.n)
            self._bar.set_postfix_str(f"{shown}, {speed}")
        elif time.monotonic() - self._last_line > LINE_SECONDS:
            self._last_line = time.monotonic()
            left = timedelta(seconds=round(pace * (self.steps - step)))
            self.say(f"step {step:,}/{self.steps:,}: {shown}, {speed}, {left} left")

    def forget_after(self, step: int) -> None:
        """Drop metrics of steps that a resumed run repeats, and incomplete lines."""
        if not self.metrics.is_file():
            return
        kept, damaged = [], 0
        for line in self.metrics.read_bytes().splitlines():
            try:
                reached = int(json.loads(line)["step"])
            except (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError):
                damaged += 1  # the last one may be incomplete after a crash
                continue
            if reached <= step:
                kept.append(line)
        if damaged:
            self.say(f"{self.metrics}: {damaged} damaged lines were dropped")
        with replacing(self.metrics) as temporary:
            temporary.write_bytes(b"".join(line + b"\n" for line in kept))

    def close(self) -> None:
        """Close the progress bar."""
        if self._bar is not None:
            self._bar.close()

    def say(self, message: str) -> None:
        """Print a message to stderr, from the main process only."""
        if self.is_main:
            print(f"train: {message}", file=sys.stderr, flush=True)

    # ---------------------------------------------------------------- checkpoints

    def clear_staging(self) -> None:
        """Remove the folder that checkpoints are written into."""
        shutil.rmtree(self.staging, ignore_errors=True)

    def save_state(self, path: Path, recipe: Recipe) -> None:
        """Write the state that a resumed run needs."""
        best = self.best_loss if math.isfinite(self.best_loss) else None
        state = {
            "best_loss": best,
            "best_step": self.best_step,
            "without_better": self.without_better,
            "measured": [recipe.report_ratios, recipe.report.documents],
        }
        path.write_text(json.dumps(state), encoding="utf-8")

    def load_state(self, path: Path, recipe: Recipe) -> None:
        """Read the state; ignore a best loss that was measured on other ratios or documents."""
        state = json.loads(path.read_text(encoding="utf-8"))
        if state.get("measured") == [recipe.report_ratios, recipe.report.documents]:
            self.best_loss = math.inf if state["best_loss"] is None else state["best_loss"]
            self.best_step, self.without_better = state["best_step"], state["without_better"]

    def begin(self, step: int) -> None:
        """Start the clock after `step`: loading and packing do not count as training time."""
        self._logged, self._interval = step, time.monotonic()


class StopGently(TrainerCallback):
    """Callback that evaluates at the last step, and stops with a checkpoint on a signal."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.stopped = False
        """Whether a signal ended the run before its last step."""
        self._signal = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within the context, let the current step finish on SIGINT or SIGTERM; a second Ctrl-C interrupts at once."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread can handle signals
            return
        before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._signal = number
        os.write(2, b"train: stopping after this step with a checkpoint.\n")

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Take the intervals from the arguments, which may differ from those in a checkpoint."""
        state.compute_steps(args, args.max_steps)
        self.report.begin(state.global_step)
        return control

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Evaluate after the last step; stop if a process received a signal."""
        if state.global_step >= args.max_steps:
            control.should_log = control.should_evaluate = True
        elif self._any_signalled(args):
            self.stopped = control.should_save = control.should_training_stop = True
        return control

    def _any_signalled(self, args: TrainingArguments) -> bool:
        """Return whether any process received a signal; all processes must stop at the same step."""
        if args.world_size == 1:
            return bool(self._signal)
        flag = torch.tensor(float(bool(self._signal)), device=args.device)
        torch.distributed.all_reduce(flag)
        return bool(flag)


def _rounded(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.7g}") if math.isfinite(value) else None
