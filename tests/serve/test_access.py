"""Who may send requests: the key, and other origins."""

from __future__ import annotations

import pytest

from tests.serve.requests import connect
from textnuggets.errors import ConfigError
from textnuggets.serve.app import create_app


def test_a_key_is_required_if_one_is_set(copier):
    with connect(create_app({"tiny": copier}, api_key="secret")) as client:
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
    with connect(create_app({"tiny": copier})) as client:
        assert "access-control-allow-origin" not in client.get("/health", headers=headers).headers
    with connect(create_app({"tiny": copier}, cors=["https://example.org"])) as client:
        allowed = client.get("/health", headers=headers).headers["access-control-allow-origin"]
        assert allowed == "https://example.org"
        refused = client.post("/nuggets", content=iter([b"{}"]), headers=headers)
        assert refused.headers["access-control-allow-origin"] == "https://example.org"
