"""The first stage of a search: means of vectors propose the documents that are scored."""

from __future__ import annotations

import numpy as np
import pytest

from tests.search.conftest import IDS
from tests.tiny import CORPUS
from textnuggets import NuggetIndex
from textnuggets.search.backends import edge, edge_backend, server
from textnuggets.search.pools import POOL, pool, pool_query

# Texts of these tests have characters that the tiny tokenizer does not know.
pytestmark = pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")


@pytest.mark.parametrize("count", [1, POOL, POOL + 1, 3 * POOL + 5])
def test_pools_are_means_of_equal_runs(count):
    vectors = np.random.default_rng(0).normal(size=(count, 8)).astype(np.float32)
    pools = pool(vectors)
    assert len(pools) == -(-count // POOL)
    runs = np.array_split(vectors[::-1], len(pools))[::-1]  # the longer ones last
    expected = np.stack([run.mean(0) for run in runs])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert pools == pytest.approx(expected, abs=1e-5)
    whole = vectors.mean(0) / np.linalg.norm(vectors.mean(0))
    assert pool_query(vectors) == pytest.approx(whole[None], abs=1e-5)


@pytest.fixture(params=["disk", "server"])
def staged(request, model, tmp_path, monkeypatch):
    for module in (edge, server):
        monkeypatch.setattr(module, "CANDIDATES", 2)
        monkeypatch.setattr(module, "FACTOR", 1)
    if request.param == "server":
        client = server.connect(":memory:")
        monkeypatch.setattr(server, "connect", lambda *_: client)
    place = tmp_path / "index" if request.param == "disk" else "http://localhost:6333/stages"
    with NuggetIndex.create(place, model, ratio=0.5, dtype="float16", words=True, first_stage=True) as made:
        made.add(IDS, CORPUS, [{"n": i} for i in range(5)])
        yield made


def found(index, query, **settings):
    return [hit.id for hit in index.search(query, **settings)]


def test_only_candidates_are_scored_and_in_the_order_of_their_scores(staged, model):
    query = CORPUS[1][:30]
    pooled = {
        name: (pool_query(model.encode(query, ratio=0.5).vectors) @ pool(nuggets.vectors).T).max()
        for name, nuggets in zip(IDS, model.encode(CORPUS, ratio=0.5), strict=True)
    }
    exact = found(staged, query, k=5, exact=True)
    assert len(exact) == 5
    candidates = sorted(pooled, key=pooled.get)[-2:]
    assert found(staged, query, k=2) == [name for name in exact if name in candidates]
    assert found(staged, query, k=1)[0] in candidates


def test_a_filter_is_searched_exactly(staged):
    assert found(staged, CORPUS[0], k=5, filter={"n": 4}) == ["doc-4"]


def test_words_find_what_the_first_stage_does_not_propose(staged):
    assert "doc-4" in found(staged, "counted coins one by one until the lamp", k=5, hybrid=True)


def test_an_index_gets_a_first_stage_when_it_is_compacted_with_many_documents(model, tmp_path, monkeypatch):
    place = tmp_path / "index"
    with NuggetIndex.create(place, model, ratio=0.2, dtype="float16") as index:
        index.add(IDS, CORPUS)
        index.compact()
        assert index.info()["pooled"] is False
        monkeypatch.setattr(edge_backend, "LARGE", 5)
        exact = index.search(CORPUS[3])
        index.compact()
        assert index.info()["pooled"] is True
        index.add(["new"], ["The lamp by the river."])
        assert [hit.id for hit in index.search("The lamp by the river.", k=1)] == ["new"]
        index.delete(["new"])
    with NuggetIndex.open(place) as index:
        assert index.info()["pooled"] is True
        for hit, same in zip(index.search(CORPUS[3]), exact, strict=True):
            assert (hit.id, hit.matches[0].document) == (same.id, same.matches[0].document)
            assert hit.score == pytest.approx(same.score, abs=2e-3)
        monkeypatch.setattr(edge_backend, "LARGE", 6)
        index.compact()
        assert index.info()["pooled"] is False
        assert len(index.search(CORPUS[3])) == 5
    assert NuggetIndex.check(place).damage == []


def test_opening_an_index_with_several_vectors_is_no_damage(model, tmp_path):
    place = tmp_path / "index"
    with NuggetIndex.create(place, model, first_stage=True, words=True) as index:
        index.add(IDS, CORPUS)
        index.compact()
    for _ in range(8):  # the engine writes its settings in another order each time
        with NuggetIndex.open(place) as index:
            assert index.info()["checksums"] is True
        checked = NuggetIndex.check(place)
        assert checked.files > 10
        assert checked.damage == []
    settings = place / "engine-2" / "edge_config.json"
    settings.write_text(settings.read_text().replace("Dot", "Not"))
    assert "edge_config.json has other content" in NuggetIndex.check(place).damage[0]


@pytest.mark.parametrize("first_stage", [True, False])
def test_what_was_asked_for_does_not_depend_on_the_number_of_documents(
    model, tmp_path, monkeypatch, first_stage
):
    monkeypatch.setattr(edge_backend, "LARGE", 0 if not first_stage else 100)
    with NuggetIndex.create(tmp_path / "index", model, first_stage=first_stage) as index:
        index.add(IDS, CORPUS)
        assert index.info()["pooled"] is first_stage
        index.compact()
        assert index.info()["pooled"] is first_stage
