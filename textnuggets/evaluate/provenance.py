"""Provenance of results (model, data, versions), and reading and writing of results files."""

from __future__ import annotations

import json
import platform
import random
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from textnuggets import __version__
from textnuggets.data.packed import PackedCorpus, PackingSettings, load_corpus, tokenizers_of
from textnuggets.errors import InputError
from textnuggets.io.corpora import check_source
from textnuggets.io.files import replacing
from textnuggets.io.hashing import digest_files
from textnuggets.model.fingerprint import fingerprint
from textnuggets.model.modeling import NuggetModel


def provenance(model: NuggetModel, sources: Sequence[str], seed: int) -> dict[str, Any]:
    """Return the model's weights and settings, the data, the seed and the software versions."""
    settings = ("scorer_layer", "selector", "residual", "feedback", "window")
    return {
        "model": {
            "backbone": model.adapter.config.model_type,
            "weights": fingerprint(model),
            "parameters": model.num_parameters(),
            **{key: getattr(model.config, key) for key in settings},
        },
        "data": [describe_source(source) for source in sources],
        "seed": seed,
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


def draw_documents(
    model: NuggetModel,
    sources: Sequence[str],
    max_tokens: int,
    count: int,
    seed: int,
    languages: Sequence[str],
    cache: str,
    min_tokens: int = 16,
) -> tuple[PackedCorpus, list[int]]:
    """Return a packed corpus and the rows of a random sample of its documents."""
    settings = PackingSettings(list(languages), max_tokens, min_tokens, cache, translates=len(languages) > 1)
    corpus = load_corpus(sources, settings, tokenizers_of(model, settings))
    return corpus, random.Random(seed).sample(range(len(corpus)), min(count, len(corpus)))


def describe_source(source: str) -> dict[str, Any]:
    """Describe a corpus by name and SHA-256; a dataset of the Hub by name alone."""
    files = [Path(source)] if Path(source).is_file() else check_source(source)
    if files is None:
        return {"source": source}
    parts = [part for file in files for part in (sorted(file.rglob("*")) if file.is_dir() else [file])]
    digest = digest_files(*(part for part in parts if part.is_file()))
    return {"source": "/".join(Path(source).parts[-2:]), "sha256": digest}


def read_results(path: Path) -> dict[str, Any]:
    """Read a results file; raise InputError if it is not JSON."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: not a results file ({error}).") from error
    return found


def write_results(path: Path, results: dict[str, Any]) -> None:
    """Write results as JSON, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
