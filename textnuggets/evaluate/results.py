"""Results that can be trusted later: figures with the settings, data, versions and counts behind them."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from textnuggets import __version__
from textnuggets.files import replacing
from textnuggets.text.corpora import check_source


def provenance(sources: Sequence[str], seed: int) -> dict[str, Any]:
    """What figures depend on besides the model and its settings."""
    packages = ("torch", "transformers", "tokenizers", "sacrebleu")
    return {
        "data": [describe_source(source) for source in sources],
        "seed": seed,
        "versions": {
            "textnuggets": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in packages},
        },
        "threads": torch.get_num_threads(),
    }


def describe_source(source: str) -> dict[str, Any]:
    """A corpus by name and content; a dataset of the Hub by name alone."""
    files = check_source(source)
    if files is None:
        return {"source": source}
    digest = hashlib.sha256()
    for file in files:
        for part in sorted(file.rglob("*")) if file.is_dir() else [file]:
            if part.is_file():
                digest.update(part.read_bytes())
    return {"source": "/".join(Path(source).parts[-2:]), "sha256": digest.hexdigest()}


def write_results(path: Path, results: dict[str, Any]) -> None:
    """Write results as JSON, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
