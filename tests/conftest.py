"""Shared fixtures; one torch thread, which is faster for small models, and no network access."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from copy import deepcopy
from typing import NamedTuple

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
    """Tiny BART model, shared: tests must not change it."""
    return tiny_model("bart")


@pytest.fixture(scope="session")
def copier() -> NuggetModel:
    """Tiny model trained to copy the corpus."""
    from tests.overfit import overfit

    model = overfit(tiny_model("bart", ratio=0.5), CORPUS, steps=250)
    model._tokenizer = deepcopy(model.tokenizer)  # the tiny tokenizer is shared by all tests
    for _ in range(5):  # sums in another order, as on another machine, may leave a word wrong
        if model.reconstruct(model.encode(CORPUS), num_beams=1) == CORPUS:
            return model
        overfit(model, CORPUS, steps=100, lr=2e-3)
    raise AssertionError("the tiny model has not learned its corpus")


@pytest.fixture(scope="session")
def copier_folder(copier: NuggetModel, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of the saved copier."""
    folder = tmp_path_factory.mktemp("models") / "copier"
    copier.save_pretrained(folder)
    return str(folder)


class Finished(NamedTuple):
    """Result of a command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Finished]:
    """Run the command line in this process, because importing torch in a new one takes seconds."""
    from textnuggets.cli import main

    def run(*arguments: object, stdin: str | None = "") -> Finished:
        monkeypatch.setattr(sys, "argv", ["textnuggets", *map(str, arguments)])
        stream = None if stdin is None else io.TextIOWrapper(io.BytesIO(stdin.encode()))
        monkeypatch.setattr(sys, "stdin", stream)  # None if it is closed, as in Python
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Finished(int(ended.value.code or 0), out, err)

    return run
