"""Paired timing of two functions, and recording of results."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
PACKAGES = (
    "textnuggets",
    "torch",
    "onnxruntime",
    "transformers",
    "tokenizers",
    "sentence-transformers",
    "numpy",
    "pyarrow",
)


def compare(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> dict[str, Any]:
    """Return the speed of `ours` relative to `theirs`: the median ratio of paired rounds, in alternating order.

    Rounds are paired because a busy machine slows both sides of a round equally.
    """
    ours(), theirs()  # warm up
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for number in range(rounds):
        sides = [("ours", ours), ("theirs", theirs)]
        for name, run in sides if number % 2 else reversed(sides):
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    ratios = [theirs / ours for ours, theirs in zip(seconds["ours"], seconds["theirs"], strict=True)]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratio_min": round(min(ratios), 3),
        "ratio_max": round(max(ratios), 3),
        "rounds": rounds,
        "seconds_ours": [round(s, 3) for s in seconds["ours"]],
        "seconds_theirs": [round(s, 3) for s in seconds["theirs"]],
    }


def record(name: str, claim: str, target: str, config: dict[str, Any], result: dict[str, Any]) -> None:
    """Print the ratio and write `bench/results/NAME.json` with settings, machine and versions.

    Args:
        name: Name of the benchmark.
        claim: What the ratio is relative to.
        target: Condition the ratio should meet, such as ">= 1.0".
        config: Settings of the benchmark.
        result: Measurements, with `ratio`.
    """
    print(f"{name}: {result['ratio']}x (target {target}) {claim}")
    RESULTS.mkdir(exist_ok=True)
    note = {
        "name": name,
        "claim": claim,
        "target": target,
        **result,
        "config": config,
        "machine": {
            "processor": platform.machine(),
            "torch_threads": torch.get_num_threads(),
            "python": platform.python_version(),
        },
        "versions": {package: version(package) for package in PACKAGES},
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
