"""Requests to an application in tests: a client, and one valid body for each path."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.tiny import CORPUS

BODIES = {
    "/v1/embeddings": {"input": CORPUS[0]},
    "/v1/rerank": {"query": CORPUS[0], "documents": CORPUS[1:]},
    "/similarity": {"query": CORPUS[0], "document": CORPUS[1]},
    "/nuggets": {"texts": [CORPUS[0]]},
    "/reconstruct": {"texts": [CORPUS[0]]},
    "/gain": {"text": CORPUS[0], "nugget": 0},
    "/search": {"query": CORPUS[0]},
}


def connect(app: FastAPI, **options: Any) -> TestClient:
    """Return a client that runs the application without a socket."""
    return TestClient(app, base_url="http://localhost", **options)
