"""What a run says and remembers: the live line, metrics.jsonl, the best loss so far."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from textnuggets.files import put_in_place, replacing

LINE_SECONDS = 10.0  # between two plain lines, where there is no terminal


class Report:
    """Figures of a run, and where they go."""

    def __init__(self, out: Path, steps: int) -> None:
        self.out, self.steps = out, steps
        self.staging = out / ".unfinished"
        self.best_loss, self.best_step, self.without_better = math.inf, 0, 0
        self._counts: list[Tensor] = []
        self._interval = time.monotonic()
        self._last_line = 0.0
        self._logged = 0  # the step of the last figures
        self._bar: Any = None

    # ---------------------------------------------------------------- figures of an interval

    def count(self, correct: Tensor, targets: Tensor, tokens: Tensor) -> None:
        """Add a batch: targets predicted right, all targets, source tokens."""
        self._counts.append(torch.stack([correct, targets, tokens]))

    def pause(self, seconds: float) -> None:
        """Leave out time that was not spent training."""
        self._interval += seconds

    def take(self, accelerator: Any) -> dict[str, float]:
        """The figures since the last call, of all processes together."""
        correct, targets, tokens = accelerator.reduce(torch.stack(self._counts).sum(0).double()).tolist()
        seconds = time.monotonic() - self._interval
        self._counts, self._interval = [], time.monotonic()
        return {
            "token_accuracy": correct / max(1.0, targets),
            "tokens": tokens,
            "tokens_per_second": tokens / max(seconds, 1e-9),
            "seconds": seconds,
        }

    # ---------------------------------------------------------------- what is written

    @property
    def metrics(self) -> Path:
        """metrics.jsonl."""
        return self.out / "metrics.jsonl"

    def write(self, step: int, logs: dict[str, float]) -> None:
        """One line of metrics.jsonl, and one for whoever is watching."""
        record = {key: _rounded(value) for key, value in logs.items() if key not in ("epoch", "total_flos")}
        with self.metrics.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"step": step, **record}) + "\n")
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
        """The live line: a bar on a terminal, a plain line now and then elsewhere."""
        pace = logs["seconds"] / max(1, step - self._logged)
        self._logged = step
        shown = f"loss {logs['loss']:.4f}, token accuracy {logs['token_accuracy']:.1%}"
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
        """Drop figures of steps that a resumed run takes again, and a line that was cut short."""
        if not self.metrics.is_file():
            return
        kept = []
        for line in self.metrics.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if record["step"] <= step:
                kept.append(line)
        with replacing(self.metrics) as temporary:
            temporary.write_text("".join(line + "\n" for line in kept), encoding="utf-8")

    def close(self) -> None:
        """End the live line."""
        if self._bar is not None:
            self._bar.close()

    def say(self, message: str) -> None:
        """A remark on standard error, from the first process alone."""
        if os.environ.get("RANK", "0") == "0":
            print(f"train: {message}", file=sys.stderr, flush=True)

    # ---------------------------------------------------------------- checkpoints

    def clear_staging(self, is_main: bool) -> None:
        """An empty folder to write a checkpoint into."""
        if is_main:
            shutil.rmtree(self.staging, ignore_errors=True)
            self.staging.mkdir(parents=True)

    def publish(self, staged: Path) -> None:
        """Give a folder that is whole its name."""
        put_in_place(staged, self.out / staged.name)
        shutil.rmtree(self.staging, ignore_errors=True)

    def save_state(self, path: Path) -> None:
        """What a resumed run must know."""
        state = {"best_step": self.best_step, "without_better": self.without_better}
        best = self.best_loss if math.isfinite(self.best_loss) else None
        path.write_text(json.dumps({**state, "best_loss": best}), encoding="utf-8")

    def load_state(self, path: Path) -> None:
        """Read it back."""
        state = json.loads(path.read_text(encoding="utf-8"))
        self.best_loss = math.inf if state["best_loss"] is None else state["best_loss"]
        self.best_step, self.without_better = state["best_step"], state["without_better"]


class StopGently(TrainerCallback):
    """Ends a run at its last step with an evaluation, and on a signal with a checkpoint."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.signal: int | None = None

    def watch(self) -> None:
        """From now on, let Ctrl-C and termination finish the step; a second Ctrl-C does not wait."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, number: int, _: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.signal = number
        self.report.say("stopping after this step, with a checkpoint.")

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """After every update of the weights."""
        if state.global_step >= args.max_steps:
            control.should_log = control.should_evaluate = True
        if self.signal is not None:
            control.should_save = control.should_training_stop = True
        return control


def _rounded(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.7g}") if math.isfinite(value) else None
