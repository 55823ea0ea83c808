"""Provenance of results (model, data, versions), and writing of results files."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from textnuggets import __version__
from textnuggets.config import ARCHITECTURE
from textnuggets.evaluate.sample import Sample
from textnuggets.io.corpora import check_source
from textnuggets.io.files import replacing
from textnuggets.io.hashing import digest_files
from textnuggets.model.fingerprint import fingerprint
from textnuggets.model.modeling import NuggetModel


def provenance(model: NuggetModel, sample: Sample) -> dict[str, Any]:
    """Return the model's weights and settings, the data, the seed and the software versions."""
    return {
        "model": {
            "backbone": model.adapter.config.model_type,
            "weights": fingerprint(model),
            "parameters": model.num_parameters(),
            **{key: getattr(model.config, key) for key in (*ARCHITECTURE, "window")},
        },
        "data": [describe_source(source) for source in sample.sources],
        "seed": sample.seed,
        **software("sacrebleu"),
    }


def software(*packages: str) -> dict[str, Any]:
    """Return software versions and the number of threads.

    Args:
        packages: Packages to add to the default ones.
    """
    used = ("torch", "transformers", "tokenizers", *packages)
    return {
        "versions": {
            "textnuggets": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in used},
        },
        "threads": torch.get_num_threads(),
    }


def describe_source(source: str) -> dict[str, Any]:
    """Describe a corpus by name and SHA-256; a dataset of the Hub by name alone."""
    files = [Path(source)] if Path(source).is_file() else check_source(source)
    if files is None:
        return {"source": source}
    parts = [part for file in files for part in (sorted(file.rglob("*")) if file.is_dir() else [file])]
    digest = digest_files(*(part for part in parts if part.is_file()))
    return {"source": "/".join(Path(source).parts[-2:]), "sha256": digest}


def write_results(path: Path, results: dict[str, Any]) -> None:
    """Write results as JSON, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
