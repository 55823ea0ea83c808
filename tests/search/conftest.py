"""Fixtures of the tests of an index."""

from __future__ import annotations

import os
from uuid import uuid4

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


URL = os.environ.get("TEXTNUGGETS_QDRANT_URL")  # a real server, to run the same tests on it


@pytest.fixture(params=["disk", "server", *(["url"] if URL else [])])
def index(request, model, tmp_path, monkeypatch):
    place = f"{URL or 'http://localhost:6333'}/textnuggets-{uuid4().hex}"
    if request.param == "server":
        client = server.connect(":memory:")
        monkeypatch.setattr(server, "connect", lambda *_: client)
    elif request.param == "disk":
        place = tmp_path / "index"
    with NuggetIndex.create(place, model, ratio=0.2, dtype="float16") as made:
        yield made
        if request.param == "url":
            made._backend.client.delete_collection(made._backend.collection)
