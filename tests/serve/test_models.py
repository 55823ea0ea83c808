"""A server with several models: which one handles a request, and errors for models that are not served."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from tests.serve.requests import BODIES, connect
from tests.tiny import CORPUS
from textnuggets import NuggetIndex, maxsim
from textnuggets.errors import ConfigError, TextnuggetsWarning
from textnuggets.serve.app import create_app


@pytest.fixture
def client(encoder, decoder):
    """Both models; the decoder is first, so that the first is not always the one to use."""
    with connect(create_app({"decoder": decoder, "encoder": encoder})) as made:
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
    with connect(create_app({"encoder": encoder})) as client:
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


def test_the_model_of_the_index_is_the_default_for_comparing(encoder, decoder, tmp_path):
    with pytest.warns(TextnuggetsWarning, match="not to be compared"):
        index = NuggetIndex.create(tmp_path / "index", decoder)
    index.add([f"d{i}" for i in range(5)], CORPUS, [{"nothing": None}] * 5)
    with connect(create_app({"encoder": encoder, "decoder": decoder}, index)) as client:
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
