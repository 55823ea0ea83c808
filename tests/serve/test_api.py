"""The HTTP API: responses, errors, batching and limits."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.tiny import CORPUS, tiny_model
from textnuggets import NuggetIndex, maxsim
from textnuggets.cli.serve import serve
from textnuggets.errors import ConfigError
from textnuggets.serve.app import create_app
from textnuggets.serve.middleware import Limits
from textnuggets.serve.scheduler import Busy, Worker


@pytest.fixture(scope="module")
def client(copier, tmp_path_factory):
    index = NuggetIndex.create(tmp_path_factory.mktemp("served") / "index", copier)
    index.add([f"d{i}" for i in range(5)], CORPUS, [{"n": i} for i in range(5)])
    limits = Limits(texts=8, tokens=500, body_bytes=20_000)
    with TestClient(create_app({"tiny": copier}, index, limits), raise_server_exceptions=False) as made:
        yield made


def test_embeddings_have_openais_format(client, copier):
    answer = client.post(
        "/v1/embeddings", json={"input": CORPUS[:2], "ratio": 0.2, "spans": True, "scores": True}
    )
    assert answer.status_code == 200
    found = answer.json()
    assert found["object"] == "list"
    assert found["model"] == "tiny"
    expected = copier.encode(CORPUS[:2], ratio=0.2)
    for place, (item, nuggets) in enumerate(zip(found["data"], expected, strict=True)):
        assert item["object"] == "embedding"
        assert item["index"] == place
        assert np.abs(np.array(item["embedding"]) - nuggets.vectors).max() < 1e-5
        assert item["shape"] == list(nuggets.vectors.shape)
        assert item["spans"] == nuggets.spans.tolist()
        assert len(item["scores"]) == len(nuggets)
    tokens = sum(nuggets.token_count for nuggets in expected)
    assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert "spans" not in client.post("/v1/embeddings", json={"input": "cat"}).json()["data"][0]


def test_base64_holds_the_same_numbers(client):
    plain, packed = (
        client.post("/v1/embeddings", json={"input": CORPUS[0], "encoding_format": kind}).json()["data"][0]
        for kind in ("float", "base64")
    )
    vectors = np.frombuffer(base64.b64decode(packed["embedding"]), "<f4").reshape(packed["shape"])
    assert np.abs(vectors - np.array(plain["embedding"])).max() < 1e-6


def test_rerank_has_the_format_of_cohere_and_jina(client, copier):
    documents = [CORPUS[1], {"text": CORPUS[0]}, CORPUS[2]]
    body = {"query": CORPUS[0], "documents": documents, "top_n": 2, "return_documents": True}
    found = client.post("/v1/rerank", json=body).json()
    assert found["results"][0]["index"] == 1
    assert found["results"][0]["document"] == {"text": CORPUS[0]}
    assert len(found["results"]) == 2
    expected = maxsim(copier.encode(CORPUS[0]), copier.encode([CORPUS[1], CORPUS[0], CORPUS[2]]))
    for result in found["results"]:
        assert result["relevance_score"] == pytest.approx(expected[result["index"]], abs=1e-5)


def test_rerank_encodes_the_query_at_the_models_ratio_for_queries(client, copier, monkeypatch):
    monkeypatch.setattr(copier.config, "query_ratio", 1.0)
    body = {"query": CORPUS[0], "documents": [CORPUS[1]], "ratio": 0.2}
    (result,) = client.post("/v1/rerank", json=body).json()["results"]
    every, few = (
        maxsim(copier.encode(CORPUS[0], ratio=ratio), copier.encode(CORPUS[1], ratio=0.2))
        for ratio in (1.0, 0.2)
    )
    assert result["relevance_score"] == pytest.approx(every, abs=1e-5)
    assert every != pytest.approx(few, abs=1e-3)


def test_nuggets_come_back_as_text(client):
    found = client.post("/nuggets", json={"texts": [CORPUS[0]], "pieces": True}).json()["texts"][0]
    assert "".join(piece["text"] for piece in found["pieces"] if not piece["is_special"]) == CORPUS[0]
    assert sum(piece["is_nugget"] for piece in found["pieces"]) == len(found["nuggets"])
    again = client.post("/reconstruct", json={"nuggets": [found]}).json()["texts"][0]
    assert again == {"text": CORPUS[0], "vectors": len(found["nuggets"])}
    direct = client.post("/reconstruct", json={"texts": [CORPUS[0]]}).json()["texts"][0]
    assert direct == {"text": CORPUS[0], "bleu": 100.0, "vectors": len(found["nuggets"])}


def test_line_breaks_are_kept_by_the_api(client):
    text = f"{CORPUS[0]}\n\n{CORPUS[1]}"
    item = client.post("/nuggets", json={"texts": [text], "ratio": 0.25}).json()["texts"][0]
    assert item["layout"]["runs"][0][1] == "\n\n"
    back = client.post("/reconstruct", json={"nuggets": [item]}).json()["texts"][0]["text"]
    assert back.count("\n\n") == 1
    assert "layout" not in client.post("/nuggets", json={"texts": [CORPUS[0]]}).json()["texts"][0]
    item["layout"]["runs"] = [[1, "<script>"]]
    refused = client.post("/reconstruct", json={"nuggets": [item]})
    assert refused.status_code == 422
    assert "more than white space" in refused.json()["error"]["message"]


def test_characters_that_cannot_be_decoded_give_a_warning(client):
    answer = client.post("/reconstruct", json={"texts": [f"{CORPUS[0]} 東京"]}).json()
    assert "cannot be decoded again: '京', '東'" in answer["warning"]
    assert "warning" not in client.post("/reconstruct", json={"texts": [CORPUS[0]]}).json()


def test_similarity_returns_its_cosines(client):
    found = client.post("/similarity", json={"query": CORPUS[0], "document": CORPUS[1]}).json()
    matrix = np.array(found["matrix"])
    assert matrix.shape == (len(found["query"]["nuggets"]), len(found["document"]["nuggets"]))
    assert found["winners"] == matrix.argmax(1).tolist()
    assert found["score"] == pytest.approx(matrix.max(1).mean(), abs=1e-5)
    same = client.post("/similarity", json={"query": CORPUS[0], "document": CORPUS[0]}).json()
    assert same["score"] == pytest.approx(1, abs=1e-5)
    assert same["bm25"] > 0
    assert "cat" in same["shared_words"]


def test_gain_returns_the_gain_of_each_token(client, copier):
    found = client.post("/gain", json={"text": CORPUS[0], "nugget": 1}).json()
    assert len(found["gain"]) == len(found["tokens"]) == copier.encode(CORPUS[0]).token_count
    assert max(map(abs, found["gain"])) > 0.001
    failed = client.post("/gain", json={"text": CORPUS[0], "nugget": 999})
    assert failed.status_code == 422
    assert failed.json()["error"]["param"] == "nugget"


def test_search_returns_documents_of_the_index(client):
    found = client.post("/search", json={"query": CORPUS[2], "k": 2}).json()["hits"]
    assert found[0]["id"] == "d2"
    assert found[0]["text"] == CORPUS[2]
    assert found[0]["matches"][0]["document"]
    filtered = client.post("/search", json={"query": CORPUS[2], "filter": {"n": 4}}).json()["hits"]
    assert [hit["id"] for hit in filtered] == ["d4"]


def test_health_and_metrics_report_the_state(client):
    assert client.get("/health").json() == {
        "status": "ok", "model": "tiny", "decodes": True, "ratio": 0.5, "dimensions": 32, "documents": 5, "models": ["tiny"],
        "version": client.get("/health").json()["version"],
    }  # fmt: skip
    client.get("/nothing/here")
    metrics = client.get("/metrics").text
    assert 'textnuggets_requests_total{path="/health",status="200"}' in metrics
    assert 'path="other",status="404"' in metrics
    assert "textnuggets_pending 0.0" in metrics


def test_the_page_loads_nothing_from_other_hosts(client):
    page = client.get("/").text
    assert "<title>textnuggets</title>" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


# -------------------------------------------------------------------- errors


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
    with TestClient(create_app({"tiny": copier}, limits=Limits(numbers=100))) as client:
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
    with TestClient(create_app({"tiny": copier}), raise_server_exceptions=False) as client:
        answer = client.post("/nuggets", json={"texts": ["a"]})
        assert answer.status_code == 500
        assert answer.json()["error"]["type"] == "server"
        assert 'path="/nuggets",status="500"' in client.get("/metrics").text


def test_decoding_needs_a_decoder_and_search_needs_an_index():
    with TestClient(create_app({"bert": tiny_model("bert")})) as client:
        assert client.post("/reconstruct", json={"texts": ["a"]}).status_code == 422
        assert client.post("/gain", json={"text": "a", "nugget": 0}).status_code == 422
        missing = client.post("/search", json={"query": "a"})
        assert missing.status_code == 404
        assert "--index" in missing.json()["error"]["message"]
        assert "documents" not in client.get("/health").json()


def test_a_key_is_required_if_one_is_set(copier):
    with TestClient(create_app({"tiny": copier}, api_key="secret")) as client:
        assert client.post("/nuggets", json={"texts": ["a"]}).status_code == 401
        wrong = client.post("/nuggets", json={"texts": ["a"]}, headers={"Authorization": "Bearer no"})
        assert wrong.status_code == 401
        right = client.post("/nuggets", json={"texts": ["a"]}, headers={"Authorization": "Bearer secret"})
        assert right.status_code == 200
        assert client.get("/health").status_code == 200
        assert client.get("/").status_code == 200


def test_an_empty_key_is_refused(copier):
    with pytest.raises(ConfigError, match="the API key is empty"):
        create_app({"tiny": copier}, api_key="")


def test_other_origins_are_allowed_only_with_cors(copier):
    headers = {"Origin": "https://example.org"}
    with TestClient(create_app({"tiny": copier})) as client:
        assert "access-control-allow-origin" not in client.get("/health", headers=headers).headers
    with TestClient(create_app({"tiny": copier}, cors=["https://example.org"])) as client:
        allowed = client.get("/health", headers=headers).headers["access-control-allow-origin"]
        assert allowed == "https://example.org"
        refused = client.post("/nuggets", content=iter([b"{}"]), headers=headers)
        assert refused.headers["access-control-allow-origin"] == "https://example.org"


# -------------------------------------------------------------------- batching, limits, timeouts


def test_requests_that_arrive_together_are_encoded_together(model):
    async def ask():
        worker = Worker(window=0.05, batch_tokens=10_000, most=50)
        found = await asyncio.gather(
            *(worker.encode(model, [text], 0.2) for text in CORPUS), worker.encode(model, ["cat"], 0.5)
        )
        worker.close()
        return worker, found

    worker, found = asyncio.run(ask())
    assert worker.batches == 2  # one for each ratio
    assert worker.batched == 6
    for (nuggets,), text in zip(found, CORPUS, strict=False):
        assert np.abs(nuggets.vectors - model.encode(text, ratio=0.2).vectors).max() < 1e-5


def test_requests_during_a_batch_form_the_next_one(model, monkeypatch):
    gate, encode, sizes = threading.Event(), type(model).encode, []

    def slowly(self, texts, **options):
        sizes.append(len(texts))
        gate.wait(10)
        return encode(self, texts, **options)

    monkeypatch.setattr(type(model), "encode", slowly)

    async def ask():
        worker = Worker(window=0.001, batch_tokens=10_000, most=50)
        first = asyncio.create_task(worker.encode(model, ["cat"], 0.2))
        while not sizes:
            await asyncio.sleep(0.001)
        later = []
        for text in ("dog", "door", "mat"):  # each after the window of the previous one
            later.append(asyncio.create_task(worker.encode(model, [text], 0.2)))
            await asyncio.sleep(0.01)
        gate.set()
        await asyncio.gather(first, *later)
        worker.close()

    asyncio.run(ask())
    assert sizes == [1, 3]


def test_one_bad_request_of_a_batch_fails_alone(model, monkeypatch):
    from textnuggets.errors import InputError

    encode = type(model).encode

    def picky(self, texts, **options):
        if "bad" in texts:
            raise InputError("bad text")
        return encode(self, texts, **options)

    monkeypatch.setattr(type(model), "encode", picky)

    async def ask():
        worker = Worker(window=0.05, batch_tokens=10_000, most=50)
        tasks = [worker.encode(model, [text], None) for text in ("good", "bad")]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        worker.close()
        return found

    good, bad = asyncio.run(ask())
    assert len(good) == 1
    assert isinstance(bad, InputError)


def test_a_full_queue_rejects_further_requests(model):
    async def ask():
        worker = Worker(window=0.2, batch_tokens=10_000, most=2)
        first = [asyncio.create_task(worker.encode(model, ["cat"], None)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await worker.encode(model, ["dog"], None)
        await asyncio.gather(*first)
        await worker.encode(model, ["dog"], None)  # there is room again
        worker.close()

    asyncio.run(ask())


def test_cancelled_requests_are_not_encoded(model, monkeypatch):
    gate, encoded = threading.Event(), []
    encode = type(model).encode

    def slow(self, texts, **options):
        encoded.extend(texts)
        gate.wait(5)
        return encode(self, texts, **options)

    monkeypatch.setattr(type(model), "encode", slow)

    async def ask():
        worker = Worker(window=0, batch_tokens=10, most=9)
        first = asyncio.create_task(worker.encode(model, ["first"], None))
        await asyncio.sleep(0.05)
        late = [asyncio.create_task(worker.encode(model, [f"late {i}"], None)) for i in range(3)]
        await asyncio.sleep(0.05)
        for task in late:
            task.cancel()
        await asyncio.sleep(0)
        assert worker.pending == 4  # they still take places in the queue
        gate.set()
        await first
        await worker.run(lambda: None)
        assert worker.pending == 0
        worker.close()

    asyncio.run(ask())
    assert [text for text in encoded if text.startswith("late")] == []


def test_a_large_request_does_not_hold_up_small_ones_in_its_batch(model):
    async def ask():
        worker = Worker(window=0.02, batch_tokens=20, most=9)
        await asyncio.gather(
            *(worker.encode(model, [text], None) for text in ("cat", "dog", " ".join(CORPUS), "door"))
        )
        worker.close()
        return worker.batches

    assert asyncio.run(ask()) >= 2


def test_a_full_queue_and_a_timeout_are_reported(copier, monkeypatch):
    gate = threading.Event()
    encode = type(copier).encode
    monkeypatch.setattr(type(copier), "encode", lambda *a, **k: gate.wait(5) and encode(*a, **k))
    with TestClient(create_app({"tiny": copier}, limits=Limits(timeout=0.2, max_queue=1))) as client:
        late = client.post("/nuggets", json={"texts": ["a"]})
        assert late.status_code == 504
        assert "0.2 seconds" in late.json()["error"]["message"]
        gate.set()
    with TestClient(create_app({"tiny": copier}, limits=Limits(max_queue=0))) as client:
        busy = client.post("/nuggets", json={"texts": ["a"]})
        assert busy.status_code == 503
        assert busy.headers["retry-after"] == "1"


def test_the_printed_address_accepts_connections_and_packets_are_sent_immediately(monkeypatch, copier_folder):
    seen = []

    def run(_, sockets):
        (listening,) = sockets
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted:
            seen.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        listening.close()

    monkeypatch.setattr("uvicorn.Server.run", run)
    serve(model=[copier_folder], port=0)
    assert [bool(value) for value in seen] == [True]


def test_the_description_has_examples_and_every_path(client):
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {
        "/v1/models", "/v1/embeddings", "/v1/rerank", "/nuggets", "/reconstruct", "/similarity", "/gain", "/search", "/health",
    }  # fmt: skip
    assert described["components"]["schemas"]["EmbeddingsRequest"]["properties"]["input"]["examples"]
