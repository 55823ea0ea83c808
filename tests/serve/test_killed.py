"""A server that is killed while handling requests loses no document of its index."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time

import httpx

from tests.tiny import CORPUS
from textnuggets import NuggetIndex


def start(model, index):
    command = [
        sys.executable,
        "-m",
        "textnuggets",
        "serve",
        "--model",
        model,
        "--index",
        index,
        "--port",
        "0",
    ]
    process = subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if found := re.match(r"(http://\S+)", line):
            return process, found[1]
    raise AssertionError("the server did not start")


def ask(address):
    answer = httpx.post(f"{address}/search", json={"query": CORPUS[2], "k": 5, "full": True}, timeout=30)
    return [(hit["id"], hit["text"]) for hit in answer.json()["hits"]]


def test_no_document_is_lost(tmp_path, copier, copier_folder):
    with NuggetIndex.create(tmp_path / "index", copier) as index:
        index.add([f"d{i}" for i in range(5)], CORPUS)
    process, address = start(copier_folder, tmp_path / "index")
    before = ask(address)
    answered = []

    def client():
        try:
            while True:
                answered.append(ask(address))
        except httpx.HTTPError:
            return  # it was killed

    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(answered) < 8:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.communicate()
    for thread in threads:
        thread.join()
    again, address = start(copier_folder, tmp_path / "index")
    try:
        assert ask(address) == before
        assert httpx.get(f"{address}/health").json()["documents"] == 5
    finally:
        again.terminate()
        again.communicate()
