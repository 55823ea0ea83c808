"""Limits are checked before the work, every text is tokenized once, and a timeout frees the worker."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from tests.serve.requests import BODIES, connect
from tests.tiny import CORPUS, tiny_model
from textnuggets.serve.app import create_app
from textnuggets.serve.middleware import Limits
from textnuggets.serve.scheduler import Worker

LONG = " ".join(f"{text} Number {i}." for i in range(12) for text in CORPUS)  # several windows


@pytest.fixture
def tokenized(copier, monkeypatch):
    """All texts that are passed to the tokenizer, in order."""
    seen = []
    tokenizer = type(copier.tokenizer)
    call = tokenizer.__call__

    def record(self, texts, *rest, **options):
        seen.extend([texts] if isinstance(texts, str) else texts)
        return call(self, texts, *rest, **options)

    monkeypatch.setattr(tokenizer, "__call__", record)
    return seen


@pytest.fixture
def untouched(copier, monkeypatch):
    """A model that fails the test if it encodes or decodes."""

    def fail(*_, **__):
        raise AssertionError("work was done for a request that is refused")

    for name in ("encode", "reconstruct"):
        monkeypatch.setattr(type(copier), name, fail)
    monkeypatch.setattr(Worker, "run", fail)
    return copier


# -------------------------------------------------------------------- tokenizing


@pytest.mark.parametrize(
    ("path", "body", "texts"),
    [
        ("/v1/embeddings", {"input": CORPUS[:3]}, CORPUS[:3]),
        ("/v1/embeddings", {"input": [CORPUS[0], CORPUS[0]]}, [CORPUS[0]]),
        ("/v1/rerank", {"query": CORPUS[0], "documents": CORPUS[1:3]}, CORPUS[:3]),
        ("/v1/rerank", {"query": CORPUS[0], "documents": CORPUS[:2]}, CORPUS[:2]),
        ("/similarity", {"query": CORPUS[0], "document": CORPUS[1]}, CORPUS[:2]),
        ("/nuggets", {"texts": CORPUS[:2]}, CORPUS[:2]),
        ("/nuggets", {"texts": CORPUS[:2], "pieces": True}, CORPUS[:2]),
        ("/gain", {"text": CORPUS[0], "nugget": 0}, CORPUS[:1]),
        ("/search", {"query": CORPUS[0]}, CORPUS[:1]),
    ],
)
def test_every_text_is_tokenized_once(client, tokenized, path, body, texts):
    assert client.post(path, json=body).status_code == 200
    assert tokenized == texts


def test_a_decoded_text_is_tokenized_once(client, tokenized):
    assert client.post("/reconstruct", json={"texts": CORPUS[:2]}).status_code == 200
    counts = Counter(tokenized)  # the warning about the text also takes single words and characters
    assert [counts[text] for text in CORPUS[:2]] == [1, 1]


@pytest.mark.parametrize("pieces", [False, True])
def test_a_long_text_and_its_windows_are_tokenized_once(copier, tokenized, pieces):
    with connect(create_app({"tiny": copier})) as client:
        answer = client.post("/nuggets", json={"texts": [LONG], "pieces": pieces})
    windows = answer.json()["texts"][0]["windows"]
    assert len(windows) > 1
    assert tokenized[0] == LONG
    assert set(Counter(tokenized).values()) == {1}
    assert len(tokenized) == 1 + len(windows)


# -------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": CORPUS[0], "ratio": 1}),
        ("/nuggets", {"texts": [CORPUS[0]], "ratio": 1}),
        ("/nuggets", {"texts": [CORPUS[0]], "ratio": 1, "pieces": True}),
        ("/similarity", {"query": CORPUS[0], "document": CORPUS[1], "ratio": 1}),
        ("/v1/rerank", {"query": CORPUS[0], "documents": [CORPUS[1]], "ratio": 1}),
    ],
)
def test_a_response_that_would_be_too_large_is_refused_before_encoding(untouched, path, body):
    with connect(create_app({"tiny": untouched}, limits=Limits(numbers=100))) as client:
        assert client.post(path, json=body).status_code == 413


@pytest.mark.parametrize("selector", ["learned", "sentence_boundary", "all_tokens", "mean"])
@pytest.mark.parametrize("ratio", [0.1, 0.7])
def test_the_estimated_size_of_a_response_is_never_too_small(selector, ratio, monkeypatch):
    model = tiny_model("bart", selector=selector)
    asked = []
    monkeypatch.setattr(
        "textnuggets.serve.service.Service.check_answer", lambda *given: asked.append(given[1])
    )
    with connect(create_app({"tiny": model})) as client:
        body = {"input": [LONG, CORPUS[0]], "ratio": ratio}
        data = client.post("/v1/embeddings", json=body).json()["data"]
    sizes = [rows * columns for rows, columns in (item["shape"] for item in data)]
    assert asked[0] >= sum(sizes)
    if selector != "sentence_boundary":
        assert asked[0] == sum(sizes)


def test_the_number_of_texts_is_checked_before_any_is_tokenized(untouched, tokenized):
    with connect(create_app({"tiny": untouched}, limits=Limits(texts=2))) as client:
        refused = client.post("/v1/rerank", json={"query": "a", "documents": ["b"] * 3})
    assert refused.json()["error"]["param"] == "documents"
    assert tokenized == []


def test_tokenizing_ends_at_the_limit(untouched, tokenized):
    with connect(create_app({"tiny": untouched}, limits=Limits(tokens=50))) as client:
        many = client.post("/nuggets", json={"texts": [f"the cat {i}" for i in range(100)]})
        assert many.status_code == 413
        assert len(tokenized) < 20
        tokenized.clear()
        assert client.post("/nuggets", json={"texts": ["the cat " * 10_000]}).status_code == 413
    assert sum(map(len, tokenized)) <= 8 * 50


def test_a_long_text_of_few_tokens_is_not_refused(copier):
    with connect(create_app({"tiny": copier}, limits=Limits(tokens=50))) as client:
        assert client.post("/nuggets", json={"texts": ["the cat" + " " * 5000]}).status_code == 200


def test_nuggets_of_too_many_tokens_are_refused_before_they_are_queued(copier, request):
    tokens = copier.encode(CORPUS[0]).token_count
    with connect(create_app({"tiny": copier}, limits=Limits(tokens=tokens))) as client:
        item = client.post("/nuggets", json={"texts": [CORPUS[0]]}).json()["texts"][0]
        request.getfixturevalue("untouched")
        refused = client.post("/reconstruct", json={"nuggets": [item] * 2})
    assert refused.status_code == 422
    assert f"the limit is {tokens}" in refused.json()["error"]["message"]


@pytest.mark.parametrize("path", sorted(BODIES.keys() - {"/search"}))
def test_a_full_queue_is_reported_before_a_text_is_tokenized(copier, tokenized, path):
    with connect(create_app({"tiny": copier}, limits=Limits(max_queue=0))) as client:
        assert client.post(path, json=BODIES[path]).status_code == 503
    assert tokenized == []


# -------------------------------------------------------------------- timeouts


@pytest.mark.parametrize(
    ("path", "body", "part"),
    [
        ("/reconstruct", {"texts": [CORPUS[0]]}, "decoder"),
        ("/reconstruct", {"texts": [CORPUS[0]], "num_beams": 4}, "decoder"),
        ("/nuggets", {"texts": [f"{text} {i}" for i in range(20) for text in CORPUS]}, "encoder"),
        ("/v1/rerank", {"query": "a", "documents": [f"{t} {i}" for i in range(20) for t in CORPUS]}, "encoder"),
        ("/nuggets", {"texts": CORPUS, "pieces": True}, "encoder"),
    ],
)  # fmt: skip
def test_after_a_timeout_the_worker_is_free_at_the_next_step(copier, path, body, part, monkeypatch):
    gate, passes = threading.Event(), []

    def block(*_):
        passes.append(path)
        gate.wait(20)

    async def time_out_in_the_first_pass(work, _):
        task = asyncio.ensure_future(work)
        while not passes:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
        raise TimeoutError

    monkeypatch.setattr(asyncio, "wait_for", time_out_in_the_first_pass)
    module = copier.adapter.encoder if part == "encoder" else copier.backbone.get_decoder()
    with connect(create_app({"tiny": copier})) as client:
        hook = module.register_forward_pre_hook(block)
        try:
            assert client.post(path, json=body).status_code == 504
            assert len(passes) == 1
        finally:
            gate.set()
            hook.remove()
        counting = module.register_forward_pre_hook(lambda *_: passes.append("after"))
        try:
            later = client.portal.call(client.app.state.service.worker.run, lambda: list(passes))
        finally:
            counting.remove()
        assert later == [path]
        assert "textnuggets_pending 0.0" in client.get("/metrics").text
