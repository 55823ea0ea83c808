"""The queue: batches, full queues, cancelled requests and timeouts."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from tests.serve.requests import BODIES, connect
from tests.tiny import CORPUS
from textnuggets.errors import InputError
from textnuggets.serve.app import create_app
from textnuggets.serve.middleware import Limits
from textnuggets.serve.scheduler import Busy, Worker


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
    with connect(create_app({"tiny": copier}, limits=Limits(timeout=0.2, max_queue=1))) as client:
        late = client.post("/nuggets", json={"texts": ["a"]})
        assert late.status_code == 504
        assert "0.2 seconds" in late.json()["error"]["message"]
        gate.set()
    with connect(create_app({"tiny": copier}, limits=Limits(max_queue=0))) as client:
        busy = client.post("/nuggets", json={"texts": ["a"]})
        assert busy.status_code == 503
        assert busy.headers["retry-after"] == "1"


@pytest.mark.parametrize("path", ["/v1/rerank", "/similarity"])
def test_a_query_and_its_documents_take_one_place_in_the_queue(encoder, path):
    with connect(create_app({"encoder": encoder}, limits=Limits(max_queue=1))) as client:
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
