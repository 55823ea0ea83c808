"""An index on a server."""

from __future__ import annotations

import pytest
from httpx import Headers
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from tests.search.conftest import IDS
from tests.tiny import CORPUS, tiny_model
from textnuggets import NuggetIndex
from textnuggets.errors import ConfigError, IndexFileError, InputError
from textnuggets.io.documents import Document
from textnuggets.search.backends import server

# Texts of these tests have characters that the tiny tokenizer does not know.
pytestmark = pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")


def test_a_server_gets_no_more_than_it_takes(model, monkeypatch):
    client = server.connect(":memory:")
    monkeypatch.setattr(server, "connect", lambda *_: client)
    sent = []
    send = server.ServerEngine._send
    monkeypatch.setattr(
        server.ServerEngine, "_send", lambda self, points: sent.append(len(points)) or send(self, points)
    )
    monkeypatch.setattr(server, "REQUEST_NUMBERS", 700)
    with NuggetIndex.create("http://localhost:6333/parts", model) as index:
        index.add(IDS, CORPUS)
        assert len(sent) > 1
        assert sum(sent) == len(index) == 5
        monkeypatch.setattr(server, "MOST_NUMBERS", 10)
        with pytest.raises(InputError, match="document 'x' has"):
            index.add(["x"], ["Text."])
        skipped = []
        assert (
            index.add_documents([Document("x", "Text.", place="a.txt")], on_bad=skipped.append).written == 0
        )
        assert str(skipped[0]).startswith("a.txt: document 'x' has")


def test_a_collection_opens_again_and_is_compacted_by_its_server(model, monkeypatch):
    client = server.connect(":memory:")
    monkeypatch.setattr(server, "connect", lambda *_: client)
    place = "http://localhost:6333/again"
    assert not NuggetIndex.exists(place)
    with pytest.raises(IndexFileError, match="the server has no such collection"):
        NuggetIndex.open(place)
    with NuggetIndex.create(place, model, ratio=0.2) as index:
        index.add(IDS, CORPUS)
        with pytest.raises(IndexFileError, match="name another collection"):
            NuggetIndex.create(place, model)
        with pytest.raises(ConfigError, match="a server compacts its collections itself"):
            index.compact()
        for given in (model, None):
            again = NuggetIndex.open(place, given)
            assert again.manifest == index.manifest
            assert again.search(CORPUS[2], k=1)[0].id == "doc-2"
        assert again.info()["documents"] == 5
        assert "bytes" not in again.info()
        assert again.reclaimable_bytes == 0
        with pytest.raises(IndexFileError, match="has other weights"):
            NuggetIndex.open(place, tiny_model("bert", scorer_layer=2))


class Failing:
    """A client whose next requests fail."""

    def __init__(self, client, *errors):
        self.client, self.errors, self.calls = client, list(errors), []

    def __getattr__(self, name):
        def call(*args, **kwargs):
            self.calls.append((name, kwargs))
            if self.errors:
                raise self.errors.pop()
            return getattr(self.client, name)(*args, **kwargs)

        return call


def refused(status):
    return UnexpectedResponse(status, "reason", b"", Headers())


@pytest.fixture
def failing(monkeypatch):
    client = Failing(server.connect(":memory:"))
    monkeypatch.setattr(server, "connect", lambda *_: client)
    monkeypatch.setattr(server, "PAUSES", (0, 0, 0))
    return client


def test_requests_are_repeated_while_a_server_is_away(failing, model):
    with NuggetIndex.create("http://localhost:6333/away", model) as index:
        for errors in (
            [refused(503), ResponseHandlingException(OSError("reset"))],
            [refused(429), refused(502), refused(504)],
        ):
            failing.errors += errors
            index.add(IDS, CORPUS, [{"round": len(errors)}] * 5)
            assert not failing.errors
            assert len(index) == 5
        failing.errors += [refused(503)] * 4
        with pytest.raises(IndexFileError, match=r"collection 'away': .*503"):
            index.search("cat")


def test_a_request_that_the_server_refuses_is_not_repeated(failing, model):
    with NuggetIndex.create("http://localhost:6333/refused", model) as index:
        failing.calls.clear()
        failing.errors.append(refused(400))
        with pytest.raises(IndexFileError, match="400"):
            index.delete(["a"])
        assert len(failing.calls) == 1


def test_shards_and_replicas_are_passed_on_when_a_collection_is_created(failing, model, tmp_path):
    with NuggetIndex.create("http://localhost:6333/parts", model, shards=6, replicas=2):
        (created,) = (kwargs for name, kwargs in failing.calls if name == "create_collection")
        assert (created["shard_number"], created["replication_factor"]) == (6, 2)
    with pytest.raises(ConfigError, match="shards must be"):
        NuggetIndex.create("http://localhost:6333/none", model, shards=0)
    with pytest.raises(ConfigError, match="only a collection on a server has shards"):
        NuggetIndex.create(tmp_path / "index", model, replicas=2)
    assert not (tmp_path / "index").exists()
