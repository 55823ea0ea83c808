"""A tiny backbone, a small corpus and a recipe, with which a training run takes a second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.tiny import CONFIGS, CORPUS, tiny_model, tiny_tokenizer

RECIPE = """
[model]
backbone = "{folder}/backbone"
scorer_layer = 1
ratio = 0.25

[data]
train = ["{folder}/train.jsonl"]
dev = ["{folder}/dev.txt"]
max_tokens = 64
cache = "{folder}/cache"

[optimizer]
steps = 12
batch_tokens = 256
lr = 1e-3

[report]
log_every = 1
evaluate_every = 6
documents = 4
bleu_documents = 0
save_every = 3
"""


def make_setting(folder: Path, family: str = "bart", **config: object) -> Path:
    """Write everything that a run needs, and return the path of the recipe."""
    model = tiny_model(family)
    if config:
        changed = CONFIGS[family]()
        changed.update(config)
        model.backbone.config = changed
    model.backbone.save_pretrained(folder / "backbone")
    tiny_tokenizer().save_pretrained(folder / "backbone")
    texts = [" ".join(CORPUS[(i * 7 + j * 3) % 5] for j in range(1 + i % 3)) for i in range(40)]
    (folder / "train.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (folder / "dev.txt").write_text("\n".join(CORPUS))
    pairs = [[text, text.upper()] for text in CORPUS]
    (folder / "pairs.jsonl").write_text((json.dumps({"lang": "fr", "pairs": pairs}) + "\n") * 8)
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(folder=folder))
    return recipe


def read_metrics(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses(run: Path) -> dict[int, float]:
    """Return the training loss of every step."""
    return {record["step"]: record["loss"] for record in read_metrics(run) if "loss" in record}


def command(*arguments: object, launcher: tuple[str, ...] = ()) -> list[str]:
    """Return the command line of a run in another process."""
    return [sys.executable, *launcher, "-m", "textnuggets", "train", *map(str, arguments)]


def run_command(*arguments: object, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Train in another process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command(*arguments, launcher=launcher),
        capture_output=True,
        encoding="utf-8",
        env=environment,
        timeout=300,
        check=False,
    )
