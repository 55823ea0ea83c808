"""The description of the API, and the page made from it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from textnuggets.serve.reference import reference


class Links(HTMLParser):
    """The ids, and all that a page loads or links to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: set[str] = set()
        self.tags: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src", "action"):
                self.targets.add(value)


@pytest.fixture(scope="module")
def described(client):
    return client.get("/openapi.json").json()


def test_the_description_has_examples_and_every_path(described):
    assert set(described["paths"]) == {
        "/v1/models", "/v1/embeddings", "/v1/rerank", "/nuggets", "/reconstruct", "/similarity", "/gain", "/search", "/health",
    }  # fmt: skip
    assert described["components"]["schemas"]["EmbeddingsRequest"]["properties"]["input"]["examples"]


def test_the_reference_has_every_path_and_field(client, described):
    page = client.get("/docs").text
    for path, methods in described["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in page
    requests = [
        schema for name, schema in described["components"]["schemas"].items() if name.endswith("Request")
    ]
    assert len(requests) == 7
    for schema in requests:
        for field in schema["properties"]:
            assert f"<code>{field}</code>" in page
    assert "integer (at least 0, at most 2147483647)" in page


def test_the_reference_loads_nothing_and_its_links_lead_somewhere(client):
    answer = client.get("/docs")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    links = Links(answer.text)
    assert links.tags.isdisjoint({"script", "link", "img", "iframe", "object", "base"})
    assert not re.search(r"url\(|@import|https?:", answer.text)
    anchors = {target.removeprefix("#") for target in links.targets if target.startswith("#")}
    assert anchors <= links.ids
    assert {target for target in links.targets if not target.startswith("#")} == {"openapi.json"}


def test_the_reference_escapes_what_it_shows():
    bad = "<script>"
    schema = {
        "type": "object",
        "description": bad,
        "properties": {bad: {"type": bad, "default": bad, "description": bad}},
    }
    body = {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{bad}"}}}}
    operation = {"description": bad, "requestBody": body, "responses": {"200": body}}
    page = reference(
        {
            "info": {"title": bad, "version": bad, "description": bad},
            "paths": {bad: {"post": operation}},
            "components": {"schemas": {bad: schema}},
        }
    )
    assert bad not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("path", ["/redoc", "/docs/oauth2-redirect"])
def test_pages_of_the_framework_are_not_served(client, path):
    assert client.get(path).status_code == 404
