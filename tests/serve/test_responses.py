"""Responses of the HTTP API."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from tests.serve.requests import connect
from tests.tiny import CORPUS
from textnuggets import NuggetIndex, maxsim
from textnuggets.serve.app import create_app


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
    assert found[0]["passages"][0]["text"] == CORPUS[2]
    assert found[0]["passages"][0]["score"] == pytest.approx(1, abs=2e-3)
    assert found[0]["metadata"] == {"n": 2}
    assert found[0]["matches"][0]["document"]
    filtered = client.post("/search", json={"query": CORPUS[2], "filter": {"n": 4}}).json()["hits"]
    assert [hit["id"] for hit in filtered] == ["d4"]


def test_search_ranks_by_words_only_if_the_index_has_words(client, copier, tmp_path):
    refused = client.post("/search", json={"query": "lamps", "hybrid": True})
    assert refused.status_code == 422
    assert refused.json()["error"]["param"] == "hybrid"
    with NuggetIndex.create(tmp_path / "index", copier, words=True) as index:
        index.add([f"d{i}" for i in range(5)], CORPUS)
        with connect(create_app({"tiny": copier}, index)) as other:
            for word, best in (("lamps", "d4"), ("letters", "d2")):  # stems count
                found = other.post("/search", json={"query": word, "hybrid": True}).json()["hits"]
                assert found[0]["id"] == best


def test_search_returns_whole_texts_only_on_request(client):
    excerpts = client.post("/search", json={"query": CORPUS[2]}).json()["hits"]
    assert not any("text" in hit or "regenerated" in hit for hit in excerpts)
    whole = client.post("/search", json={"query": CORPUS[2], "full": True}).json()["hits"]
    assert [hit["id"] for hit in whole] == [hit["id"] for hit in excerpts]
    assert whole[0]["text"] == CORPUS[2]
    assert whole[0]["regenerated"] is False
    least = client.post("/search", json={"query": CORPUS[2], "min_score": 0.99}).json()["hits"]
    assert [hit["id"] for hit in least] == ["d2"]


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
