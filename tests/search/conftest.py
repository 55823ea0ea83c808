"""Fixtures of the tests of an index."""

from __future__ import annotations

import pytest

from tests.tiny import tiny_model
from textnuggets import NuggetIndex
from textnuggets.search.backends import server

IDS = [f"doc-{i}" for i in range(5)]


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A tiny encoder that was saved, so that an index can name it."""
    from textnuggets import load

    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model("bert").save_pretrained(folder)
    return load(folder)


@pytest.fixture(params=["disk", "server"])
def index(request, model, tmp_path, monkeypatch):
    if request.param == "disk":
        made = NuggetIndex.create(tmp_path / "index", model, ratio=0.2, dtype="float16")
    else:
        client = server.connect(":memory:")
        monkeypatch.setattr(server, "connect", lambda *_: client)
        made = NuggetIndex.create("http://localhost:6333/nuggets", model, ratio=0.2, dtype="float16")
    with made:
        yield made
