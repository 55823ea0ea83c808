"""One torch thread (several times faster on small models and busy machines), and no network."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
import torch
from hypothesis import settings
from transformers.utils import logging

from tests.tiny import CORPUS, tiny_model
from textnuggets import NuggetModel

torch.set_num_threads(1)
settings.register_profile("any speed", deadline=None)  # no timing in tests
settings.load_profile("any speed")
logging.disable_progress_bar()


@pytest.fixture(scope="session")
def model() -> NuggetModel:
    """A tiny BART model that tests must not change."""
    return tiny_model("bart")


@pytest.fixture(scope="session")
def copier() -> NuggetModel:
    """A tiny model that has learned to copy the corpus."""
    from tests.overfit import overfit

    return overfit(tiny_model("bart", ratio=0.5), CORPUS, steps=250)


@pytest.fixture(scope="session")
def copier_folder(copier: NuggetModel, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same, saved."""
    folder = tmp_path_factory.mktemp("models") / "copier"
    copier.save_pretrained(folder)
    return str(folder)
