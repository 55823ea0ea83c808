"""A server with several models: which one handles a request, and errors for models that are not served."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.tiny import CORPUS, tiny_model
from textnuggets import NuggetIndex, NuggetModel, load, maxsim
from textnuggets.errors import ConfigError, IndexFileError, MissingExtraError, TextnuggetsWarning
from textnuggets.model.fingerprint import fingerprint
from textnuggets.serve.app import create_app
from textnuggets.serve.loading import load_all
from textnuggets.serve.middleware import Limits
from textnuggets.serve.scheduler import Worker

QUERY = "Why can nobody cross the river?"
RIVER = "Rain fell all night; in the morning, the river had risen over the old stone bridge, and nobody could cross it."
MILL = "The bridge could not be used after the flood, so that the villagers had to go round by the mill."
LETTER = (
    "She opened the letter, read it twice, and put it back into the drawer without a word to her brother."
)


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


@pytest.fixture
def client(encoder, decoder):
    """Both models; the decoder is first, so that the first is not always the one to use."""
    with TestClient(create_app({"decoder": decoder, "encoder": encoder})) as made:
        yield made


def test_models_are_listed_in_openais_format_with_their_capabilities(client):
    found = client.get("/v1/models").json()
    assert found["object"] == "list"
    shared = {"object": "model", "owned_by": "textnuggets", "dimensions": 32, "searches": False}
    assert found["data"] == [
        {"id": "decoder", **shared, "ratio": 0.5, "compares": False, "decodes": True},
        {"id": "encoder", **shared, "ratio": 0.25, "query_ratio": 0.6, "compares": True, "decodes": False},
    ]


def test_health_lists_the_models_and_describes_the_first(client):
    found = client.get("/health").json()
    assert found["models"] == ["decoder", "encoder"]
    assert found["model"] == "decoder"
    assert found["decodes"] is True


BODIES = {
    "/v1/embeddings": {"input": CORPUS[0]},
    "/v1/rerank": {"query": CORPUS[0], "documents": CORPUS[1:]},
    "/similarity": {"query": CORPUS[0], "document": CORPUS[1]},
    "/nuggets": {"texts": [CORPUS[0]]},
    "/reconstruct": {"texts": [CORPUS[0]]},
    "/gain": {"text": CORPUS[0], "nugget": 0},
    "/search": {"query": CORPUS[0]},
}


@pytest.mark.parametrize("path", BODIES)
def test_a_model_that_is_not_served_is_refused_with_a_list_of_those_that_are(client, path):
    answer = client.post(path, json={**BODIES[path], "model": "other"})
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert error["param"] == "model"
    assert "'decoder', 'encoder'" in error["message"]


def test_a_request_without_a_model_goes_to_the_first_that_can_do_it(client):
    chosen = {path: client.post(path, json=body).json().get("model") for path, body in BODIES.items()}
    del chosen["/gain"], chosen["/search"]
    assert chosen == {
        "/v1/embeddings": "encoder",
        "/v1/rerank": "encoder",
        "/similarity": "encoder",
        "/nuggets": "decoder",
        "/reconstruct": "decoder",
    }
    assert client.post("/gain", json=BODIES["/gain"]).status_code == 200


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_a_request_goes_to_the_model_it_names(client, encoder, decoder, name):
    model = {"encoder": encoder, "decoder": decoder}[name]
    found = client.post("/v1/embeddings", json={"input": CORPUS[0], "model": name, "ratio": 0.5}).json()
    assert found["model"] == name
    expected = model.encode(CORPUS[0], ratio=0.5).vectors
    assert np.abs(np.array(found["data"][0]["embedding"]) - expected).max() < 1e-5
    for path in ("/nuggets", "/similarity", "/v1/rerank"):
        assert client.post(path, json={**BODIES[path], "model": name}).json()["model"] == name


@pytest.mark.parametrize("path", ["/reconstruct", "/gain"])
def test_decoding_with_an_encoder_names_a_model_with_a_decoder(client, path):
    answer = client.post(path, json={**BODIES[path], "model": "encoder"})
    assert answer.status_code == 422
    assert "use 'decoder'" in answer.json()["error"]["message"]


def test_without_a_decoder_the_error_says_which_model_to_add(encoder):
    with TestClient(create_app({"encoder": encoder})) as client:
        answer = client.post("/reconstruct", json=BODIES["/reconstruct"])
    assert answer.status_code == 422
    assert "--model reconstruct" in answer.json()["error"]["message"]


def test_a_server_needs_a_model():
    with pytest.raises(ConfigError, match="at least one"):
        create_app({})


def test_similarity_encodes_the_query_at_the_models_ratio_for_queries(client, encoder):
    found = client.post("/similarity", json={**BODIES["/similarity"], "ratio": 0.2}).json()
    query, document = encoder.encode(CORPUS[0], ratio=0.6), encoder.encode(CORPUS[1], ratio=0.2)
    assert np.array(found["matrix"]).shape == (len(query), len(document))
    assert found["score"] == pytest.approx(maxsim(query, document), abs=1e-5)


def test_comparing_with_a_model_not_trained_for_it_warns_and_logs_once(client, caplog):
    with caplog.at_level(logging.WARNING, "textnuggets.serve"):
        for path in ("/v1/rerank", "/similarity", "/v1/rerank"):
            assert "warning" not in client.post(path, json=BODIES[path]).json()
            found = client.post(path, json={**BODIES[path], "model": "decoder"}).json()
            assert found["warning"] == (
                "the model 'decoder' is trained to reconstruct texts, not to compare them: use 'encoder' for that."
            )
    assert len(caplog.records) == 1


@pytest.mark.parametrize("path", ["/v1/rerank", "/similarity"])
def test_a_query_and_its_documents_take_one_place_in_the_queue(encoder, path):
    with TestClient(create_app({"encoder": encoder}, limits=Limits(max_queue=1))) as client:
        for _ in range(2):  # the place in the queue is free again
            assert client.post(path, json=BODIES[path]).status_code == 200
        assert "textnuggets_pending 0.0" in client.get("/metrics").text


def test_batches_never_mix_models(encoder, decoder):
    async def ask():
        worker = Worker(window=0.05, batch_tokens=10_000, most=50)
        asked = [(model, text) for text in CORPUS for model in (encoder, decoder)]
        found = await asyncio.gather(*(worker.encode(model, [text], 0.5) for model, text in asked))
        worker.close()
        return worker, asked, found

    worker, asked, found = asyncio.run(ask())
    assert worker.batches == 2
    for (model, text), (nuggets,) in zip(asked, found, strict=True):
        assert np.abs(nuggets.vectors - model.encode(text, ratio=0.5).vectors).max() < 1e-5


# -------------------------------------------------------------------- probabilities


def test_probabilities_are_computed_only_on_request(client, decoder, monkeypatch):
    asked = []

    def reconstruct(nuggets, **options):
        asked.append(options)
        words = [SimpleNamespace(start=0, end=3, probability=0.25)]
        made = SimpleNamespace(text="The cat", words=words)
        return [made if "return_probabilities" in options else made.text for _ in nuggets]

    monkeypatch.setattr(decoder, "reconstruct", reconstruct)
    (plain,) = client.post("/reconstruct", json={"texts": [CORPUS[0]]}).json()["texts"]
    body = {"texts": [CORPUS[0]], "probabilities": True}
    (detailed,) = client.post("/reconstruct", json=body).json()["texts"]
    assert asked == [{"num_beams": 1}, {"num_beams": 1, "return_probabilities": True}]
    assert "words" not in plain
    assert detailed == {**plain, "words": [{"start": 0, "end": 3, "probability": 0.25}]}


# -------------------------------------------------------------------- with an index


@pytest.fixture
def place(tmp_path, encoder):
    """An index, and the folder of the model it was built with."""
    encoder.save_pretrained(tmp_path / "own")
    made = NuggetModel.from_pretrained(tmp_path / "own")
    with NuggetIndex.create(tmp_path / "index", made) as index:
        index.add([f"d{i}" for i in range(5)], CORPUS)
    return tmp_path / "index", tmp_path / "own"


def test_the_model_of_the_index_is_the_default_for_comparing(encoder, decoder, tmp_path):
    with pytest.warns(TextnuggetsWarning, match="not to be compared"):
        index = NuggetIndex.create(tmp_path / "index", decoder)
    index.add([f"d{i}" for i in range(5)], CORPUS, [{"nothing": None}] * 5)
    with TestClient(create_app({"encoder": encoder, "decoder": decoder}, index)) as client:
        for path in ("/v1/embeddings", "/v1/rerank", "/similarity"):
            assert client.post(path, json=BODIES[path]).json()["model"] == "decoder"
        assert [item["searches"] for item in client.get("/v1/models").json()["data"]] == [False, True]
        found = client.post("/search", json={"query": CORPUS[2], "model": "decoder"}).json()
        assert found["hits"][0]["id"] == "d2"
        assert found["hits"][0]["metadata"] == {"nothing": None}
        assert "not to compare" in found["warning"]
        wrong = client.post("/search", json={"query": CORPUS[2], "model": "encoder"})
        assert wrong.status_code == 422
        assert "built with 'decoder'" in wrong.json()["error"]["message"]


def test_the_model_of_an_index_is_added(decoder, place):
    index, _ = place
    with TestClient(create_app({"decoder": decoder}, NuggetIndex.open(index))) as client:
        assert client.get("/health").json()["models"] == ["decoder", "own"]
        found = client.post("/search", json={"query": CORPUS[2]}).json()
        assert found["hits"][0]["id"] == "d2"
        assert "warning" not in found


def test_a_second_model_with_the_same_name_is_served_under_its_full_name(decoder, place):
    index, folder = place
    with TestClient(create_app({"own": decoder}, NuggetIndex.open(index))) as client:
        assert client.get("/health").json()["models"] == ["own", str(folder)]


# -------------------------------------------------------------------- loading


@pytest.fixture
def loaded(monkeypatch, encoder, decoder):
    """Names of the models that are loaded; tiny models replace the shipped ones."""
    names = []

    def stand_in(name):
        names.append(name)
        shipped = {"search": encoder, "reconstruct": decoder}
        return shipped[name] if name in shipped else NuggetModel.from_pretrained(name)

    monkeypatch.setattr("textnuggets.serve.loading.load_nugget_model", stand_in)
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
    with TestClient(create_app({"reconstruct": decoder, "search": search})) as client:
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
