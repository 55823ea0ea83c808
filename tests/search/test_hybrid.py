"""Hybrid searches: by vectors and by words."""

from __future__ import annotations

import pytest

from tests.search.conftest import IDS
from tests.tiny import CORPUS
from textnuggets import NuggetIndex
from textnuggets.errors import ConfigError, InputError
from textnuggets.search.backends import server

# Texts of these tests have characters that the tiny tokenizer does not know.
pytestmark = pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")


@pytest.fixture(params=["disk", "server"])
def worded(request, model, tmp_path, monkeypatch):
    if request.param == "server":
        client = server.connect(":memory:")
        monkeypatch.setattr(server, "connect", lambda *_: client)
    place = tmp_path / "index" if request.param == "disk" else "http://localhost:6333/words"
    with NuggetIndex.create(place, model, ratio=0.2, dtype="float16", words=True) as made:
        made.add(IDS, CORPUS, [{"n": i} for i in range(5)])
        yield made


def found(index, query, **settings):
    return [hit.id for hit in index.search(query, **settings)]


def test_a_rare_word_brings_its_document_to_the_front(worded):
    words = ["mats", "rivers", "drawers", "houses", "lamps"]  # stems count
    assert [found(worded, word, hybrid=True)[0] for word in words] == IDS
    assert [found(worded, word)[0] for word in words] != IDS


def test_scores_of_a_hybrid_search_are_those_of_the_vectors(worded):
    plain = {hit.id: hit for hit in worded.search("the old bridge")}
    for hit in worded.search("the old bridge", hybrid=True):
        assert hit.score == pytest.approx(plain[hit.id].score, abs=2e-3)
        assert hit.passages == plain[hit.id].passages
    threshold = sorted(hit.score for hit in plain.values())[2] - 1e-3
    assert len(found(worded, "the old bridge", hybrid=True, min_score=threshold)) == 3


def test_a_hybrid_search_keeps_to_its_filter_and_number(worded):
    assert found(worded, "the river", hybrid=True, filter={"n": 3}) == ["doc-3"]
    assert len(found(worded, "the river", hybrid=True, k=2)) == 2


def test_a_query_of_stop_words_is_searched_by_vectors(worded):
    assert found(worded, "the and of", hybrid=True) == found(worded, "the and of")


def test_words_survive_changes_and_compacting_without_texts(model, tmp_path):
    place = tmp_path / "index"
    with NuggetIndex.create(place, model, ratio=0.2, store_text=False, words=True) as index:
        index.add([*IDS, "gone"], [*CORPUS, "A zebra."])
        index.add(["doc-2"], ["A zebra opened the letter."])
        index.delete(["gone"])
        index.compact()
    with NuggetIndex.open(place) as index:
        stored = {item.id: item.words for item in index._backend.engine.documents()}
        assert all(len(words.indices) >= 3 for words in stored.values())
        assert "doc-2" in found(index, "zebras", hybrid=True)[:2]
        assert index.info()["words"] is True


def test_a_hybrid_search_without_words_says_how_to_get_them(index):
    index.add(IDS, CORPUS)
    with pytest.raises(ConfigError, match="has no words for a hybrid search: build it again with words"):
        index.search("cat", hybrid=True)


def test_encoded_files_without_texts_have_no_words(run, model, tmp_path):
    (tmp_path / "docs.txt").write_text("\n".join(CORPUS))
    name = model.config.name_or_path
    assert (
        run("encode", tmp_path / "docs.txt", "-o", tmp_path / "docs.parquet", "--model", name).returncode == 0
    )
    with (
        NuggetIndex.create(tmp_path / "index", model, store_text=False, words=True) as index,
        pytest.raises(InputError, match=r"holds no texts: .* and without --words"),
    ):
        index.add_encoded(tmp_path / "docs.parquet")


def test_the_commands_build_and_search_an_index_with_words(run, model, tmp_path):
    (tmp_path / "docs.txt").write_text("\n".join(CORPUS))
    place = tmp_path / "index"
    build = ["index", tmp_path / "docs.txt", "-o", place, "--model", model.config.name_or_path]
    assert run(*build, "--words").returncode == 0
    assert run("search", place, "lamps", "--hybrid", "-k", "5").stdout.count("docs.txt:5") == 1
    other = run(*build)
    assert other.returncode == 2
    assert "was created with words = True, not False" in other.stderr
