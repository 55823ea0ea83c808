"""Requests that are refused: their status, the field they name, and limits of size."""

from __future__ import annotations

import json

import pytest

from tests.serve.requests import connect
from tests.tiny import CORPUS, tiny_model
from textnuggets.serve.app import create_app
from textnuggets.serve.middleware import Limits


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/v1/embeddings", {}, 422, "input"),
        ("/v1/embeddings", {"input": []}, 422, "input"),
        ("/v1/embeddings", {"input": [1, 2]}, 422, "input"),
        ("/v1/embeddings", {"input": 3}, 422, "input"),
        ("/v1/embeddings", {"input": ["a"] * 9}, 422, "input"),
        ("/v1/embeddings", {"input": "a", "ratio": 0}, 422, "ratio"),
        ("/v1/embeddings", {"input": "a", "ratio": "x"}, 422, "ratio"),
        ("/v1/embeddings", {"input": "a", "dimensions": 3}, 422, "dimensions"),
        ("/v1/embeddings", {"input": "a b " * 1000}, 413, "input"),
        ("/v1/rerank", {"query": " ", "documents": ["a"]}, 422, "query"),
        ("/v1/rerank", {"query": "a", "documents": []}, 422, "documents"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": 0}, 422, "top_n"),
        ("/nuggets", {"texts": "a"}, 422, "texts"),
        ("/reconstruct", {}, 422, "texts"),
        ("/reconstruct", {"texts": ["a"], "nuggets": []}, 422, "nuggets"),
        ("/reconstruct", {"nuggets": []}, 422, "nuggets"),
        ("/reconstruct", {"nuggets": [{"nuggets": [], "windows": [], "token_count": 0}]}, 422, None),
        ("/similarity", {"query": "a", "document": ""}, 422, "document"),
        ("/search", {"query": ""}, 422, "query"),
        ("/search", {"query": "a", "k": 0}, 422, "k"),
        ("/search", {"query": "a", "filter": {"x": []}}, 422, "filter"),
        ("/search", {"query": "a", "min_score": 1.5}, 422, "min_score"),
        ("/search", {"query": "a", "full": "yes"}, 422, "full"),
        ("/v1/embeddings", {"input": "a", "ratio": "0.5"}, 422, "ratio"),
        ("/v1/rerank", {"query": "a b " * 1000, "documents": ["a"]}, 413, "query"),
    ],
)
def test_an_error_names_the_field(client, path, body, status, param):
    answer = client.post(path, json=body)
    assert answer.status_code == status
    error = answer.json()["error"]
    if param is not None:
        assert error["param"].split(".")[0] == param
    assert error["message"]


def test_invalid_json_large_bodies_and_invalid_unicode_are_refused(client):
    headers = {"Content-Type": "application/json"}
    assert client.post("/nuggets", content=b"{", headers=headers).status_code == 422
    assert client.post("/nuggets", content=b"x" * 30_000, headers=headers).status_code == 413
    assert client.post("/nuggets", content=iter([b"{}"]), headers=headers).status_code == 411
    lone = client.post("/nuggets", content=json.dumps({"texts": ["\ud800"]}).encode(), headers=headers)
    assert lone.status_code == 422
    assert client.get("/nuggets").status_code == 405
    assert client.get("/none").json()["error"]["message"] == "Not Found"


NUGGET = {
    "token": "a",
    "span": [0, 1],
    "segment": [0, 1],
    "score": 0.0,
    "position": 0,
    "vector": [0.1] * 32,
}
BAD_NUGGETS = {
    "position": {"position": 10**30},
    "span": {"span": [-1, 2]},
    "score": {"score": 1e300},
    "vector": {"vector": [1e300] * 32},
    "short": {"vector": [0.0]},
}


@pytest.mark.parametrize("name", BAD_NUGGETS)
def test_invalid_nuggets_are_refused(client, name):
    whole = {"nuggets": [{**NUGGET, **BAD_NUGGETS[name]}], "windows": [[1, 3, 0, 1]], "token_count": 3}
    answer = client.post("/reconstruct", json={"nuggets": [whole]})
    assert answer.status_code == 422
    assert answer.json()["error"]["param"].startswith("nuggets")


@pytest.mark.parametrize(
    "windows",
    [[[1, 1, 0, 0], [0, 1, 0, 5]], [[1, 0, 0, 1]], [[1, 9999, 0, 1]], [[1, 2, 5, 1]], [], [[2, 3, 0, 1]]],
)
def test_invalid_windows_are_refused(client, windows):
    body = {"nuggets": [{"nuggets": [NUGGET], "windows": windows, "token_count": 3}]}
    answer = client.post("/reconstruct", json=body)
    assert answer.status_code == 422
    assert "windows" in answer.json()["error"]["message"]


def test_a_response_that_would_be_too_large_is_refused(copier):
    with connect(create_app({"tiny": copier}, limits=Limits(numbers=100))) as client:
        for path, body in (
            ("/v1/embeddings", {"input": CORPUS[0], "ratio": 1}),
            ("/nuggets", {"texts": [CORPUS[0]], "ratio": 1}),
            ("/similarity", {"query": CORPUS[0], "document": CORPUS[1], "ratio": 1}),
            ("/v1/rerank", {"query": CORPUS[0], "documents": [CORPUS[1]], "ratio": 1}),
        ):
            assert client.post(path, json=body).status_code == 413
        assert client.post("/nuggets", json={"texts": [CORPUS[0]], "vectors": False}).status_code == 200


def test_as_many_documents_as_allowed_are_ranked(client):
    body = {"query": "cat", "documents": ["cat"] * 8}
    assert client.post("/v1/rerank", json=body).status_code == 200


def test_a_body_of_unknown_length_is_not_read(client):
    headers = {"Content-Type": "application/json", "Content-Length": "2", "Transfer-Encoding": "chunked"}
    assert client.post("/nuggets", content=b"{}", headers=headers).status_code == 411


def test_an_internal_error_has_the_same_format_and_is_counted(copier, monkeypatch):
    monkeypatch.setattr(type(copier), "encode", lambda *_, **__: 1 / 0)
    with connect(create_app({"tiny": copier}), raise_server_exceptions=False) as client:
        answer = client.post("/nuggets", json={"texts": ["a"]})
        assert answer.status_code == 500
        assert answer.json()["error"]["type"] == "server"
        assert 'path="/nuggets",status="500"' in client.get("/metrics").text


def test_decoding_needs_a_decoder_and_search_needs_an_index():
    with connect(create_app({"bert": tiny_model("bert")})) as client:
        assert client.post("/reconstruct", json={"texts": ["a"]}).status_code == 422
        assert client.post("/gain", json={"text": "a", "nugget": 0}).status_code == 422
        missing = client.post("/search", json={"query": "a"})
        assert missing.status_code == 404
        assert "--index" in missing.json()["error"]["message"]
        assert "documents" not in client.get("/health").json()
