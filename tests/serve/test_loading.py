"""Loading of the models of a server, and of its index with its model."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import httpx
import pytest

from tests.serve.requests import connect
from tests.tiny import CORPUS
from textnuggets import NuggetIndex, NuggetModel, load
from textnuggets.errors import IndexFileError, MissingExtraError
from textnuggets.model.fingerprint import fingerprint
from textnuggets.serve.app import create_app
from textnuggets.serve.loading import load_all

QUERY = "Why can nobody cross the river?"
RIVER = "Rain fell all night; in the morning, the river had risen over the old stone bridge, and nobody could cross it."
MILL = "The bridge could not be used after the flood, so that the villagers had to go round by the mill."
LETTER = (
    "She opened the letter, read it twice, and put it back into the drawer without a word to her brother."
)


@pytest.fixture
def place(tmp_path, encoder):
    """An index, and the folder of the model it was built with."""
    encoder.save_pretrained(tmp_path / "own")
    made = NuggetModel.from_pretrained(tmp_path / "own")
    with NuggetIndex.create(tmp_path / "index", made) as index:
        index.add([f"d{i}" for i in range(5)], CORPUS)
    return tmp_path / "index", tmp_path / "own"


def test_the_model_of_an_index_is_added(decoder, place):
    index, _ = place
    with connect(create_app({"decoder": decoder}, NuggetIndex.open(index))) as client:
        assert client.get("/health").json()["models"] == ["decoder", "own"]
        found = client.post("/search", json={"query": CORPUS[2]}).json()
        assert found["hits"][0]["id"] == "d2"
        assert "warning" not in found


def test_a_second_model_with_the_same_name_is_served_under_its_full_name(decoder, place):
    index, folder = place
    with connect(create_app({"own": decoder}, NuggetIndex.open(index))) as client:
        assert client.get("/health").json()["models"] == ["own", str(folder)]


@pytest.fixture
def loaded(monkeypatch, encoder, decoder):
    """Names of the models that are loaded; tiny models replace the shipped ones."""
    names = []

    def stand_in(name):
        names.append(name)
        shipped = {"search": encoder, "reconstruct": decoder}
        return shipped[name] if name in shipped else NuggetModel.from_pretrained(name)

    monkeypatch.setattr("textnuggets.serve.loading.load_encoder", stand_in)
    return names


def test_both_shipped_models_are_served_by_default(loaded):
    models, index = load_all(None, None)
    assert list(models) == loaded == ["search", "reconstruct"]
    assert index is None


def test_without_textnuggets_models_only_search_is_served_with_a_note(loaded, monkeypatch, capsys):
    def missing(_):
        raise MissingExtraError("textnuggets-models", "models", "the model 'reconstruct'")

    monkeypatch.setattr("textnuggets.serve.loading.locate", missing)
    models, _ = load_all(None, None)
    assert list(models) == loaded == ["search"]
    (note,) = capsys.readouterr().err.splitlines()
    assert note.startswith("note: only 'search' is served; the model 'reconstruct' needs")


def test_the_model_of_the_index_replaces_search_by_default(loaded, place):
    models, index = load_all(None, place[0])
    index.close()
    assert list(models) == ["own", "reconstruct"]
    assert index.model is models["own"]
    assert len(loaded) == 2


def test_a_model_with_the_weights_of_the_index_is_not_loaded_twice(loaded, place, tmp_path):
    index, own = place
    own.rename(tmp_path / "moved")
    models, opened = load_all([str(tmp_path / "moved"), "reconstruct"], index)
    opened.close()
    assert list(models) == ["moved", "reconstruct"]
    assert opened.model is models["moved"]
    assert len(loaded) == 2


def test_the_model_of_the_index_is_added_to_those_that_are_named(loaded, place):
    models, index = load_all(["reconstruct", "reconstruct", "default"], place[0])
    index.close()
    assert list(models) == ["reconstruct", "own"]
    assert fingerprint(index.model) == index.manifest.fingerprint
    assert len(loaded) == 2


def test_an_index_whose_model_was_moved_is_an_error_and_is_closed(place, tmp_path):
    index, own = place
    own.rename(tmp_path / "moved")
    with pytest.raises(IndexFileError, match="set --model to its new path"):
        load_all(None, index)
    NuggetIndex.open(index).close()  # it is not locked


# -------------------------------------------------------------------- the shipped model


@pytest.fixture(scope="module")
def search() -> NuggetModel:
    return load("search")


def ranks_as_a_person_would(ask) -> None:
    """Check that both texts about the river come before the one about the letter, named model or not."""
    for named in ({}, {"model": "search"}):
        documents = [LETTER, MILL, RIVER]
        found = ask("/v1/rerank", {"query": QUERY, "documents": documents, **named})
        assert found["model"] == "search"
        assert "warning" not in found
        assert {item["index"] for item in found["results"][:2]} == {1, 2}
        river, mill, letter = (
            ask("/similarity", {"query": QUERY, "document": text, **named})["score"]
            for text in (RIVER, MILL, LETTER)
        )
        assert min(river, mill) > letter + 0.2


def test_the_examples_rank_as_a_person_would(search, decoder):
    with connect(create_app({"reconstruct": decoder, "search": search})) as client:
        ranks_as_a_person_would(lambda path, body: client.post(path, json=body).json())


def test_a_server_started_with_an_index_ranks_as_a_person_would(search, tmp_path):
    with NuggetIndex.create(tmp_path / "index", search) as index:
        index.add(["letter", "mill", "river"], [LETTER, MILL, RIVER])
        assert json.loads((tmp_path / "index" / "index.json").read_text())["model"] == "search"
    command = [
        sys.executable,
        "-m",
        "textnuggets",
        "serve",
        "--index",
        str(tmp_path / "index"),
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = (re.match(r"http://\S+", line) for line in process.stderr)
            address = next(filter(None, lines))[0]

            def ask(path, body):
                return httpx.post(address + path, json=body, timeout=60).json()

            ranks_as_a_person_would(ask)
            hits = ask("/search", {"query": QUERY})["hits"]
            assert [hit["id"] for hit in hits][2] == "letter"
        finally:
            process.terminate()
            process.communicate()
