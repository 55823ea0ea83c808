"""Fixtures of the tests of the server."""

from __future__ import annotations

import pytest

from tests.serve.requests import connect
from tests.tiny import CORPUS, tiny_model
from textnuggets import NuggetIndex, NuggetModel
from textnuggets.serve.app import create_app
from textnuggets.serve.middleware import Limits


@pytest.fixture(scope="module")
def client(copier, tmp_path_factory):
    """A model that copies the corpus and an index of it, with low limits."""
    index = NuggetIndex.create(tmp_path_factory.mktemp("served") / "index", copier)
    index.add([f"d{i}" for i in range(5)], CORPUS, [{"n": i} for i in range(5)])
    limits = Limits(texts=8, tokens=500, body_bytes=20_000)
    with connect(create_app({"tiny": copier}, index, limits), raise_server_exceptions=False) as made:
        yield made


@pytest.fixture(scope="module")
def encoder() -> NuggetModel:
    """A model without a decoder that is trained for comparing."""
    made = tiny_model("bert")
    made.config.objective, made.config.query_ratio = "contrastive", 0.6
    return made


@pytest.fixture(scope="module")
def decoder() -> NuggetModel:
    """A model with a decoder that is not trained for comparing."""
    made = tiny_model("bart", ratio=0.5)
    made.config.objective = "autoencode"
    return made
