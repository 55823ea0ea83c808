"""An index for the retrievers, and no telemetry of the libraries."""

from __future__ import annotations

import os

import pytest

from tests.tiny import CORPUS, tiny_model
from textnuggets import NuggetIndex, load

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
os.environ["LANGSMITH_TRACING"] = "false"
LONG = " ".join([CORPUS[0], *CORPUS[3:]])
QUERY = CORPUS[1]


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A tiny encoder that was saved, so that an index can name it."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model("bert", gather="mean", ratio=0.2).save_pretrained(folder)
    return load(folder, device="cpu")


@pytest.fixture
def index(model, tmp_path):
    texts = {"long": LONG, "rain": CORPUS[1], "letter": CORPUS[2]}
    years = [{"year": 1871}, {"year": 1871}, {"year": 1902}]
    with NuggetIndex.create(tmp_path / "index", model, query_ratio=0.2) as made:
        made.add(texts, texts.values(), years)
        yield made
