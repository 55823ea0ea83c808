"""Searching an index: ranking, matches, filters and regenerated texts."""

from __future__ import annotations

from base64 import b64encode

import numpy as np
import pytest

from tests.search.conftest import IDS
from tests.tiny import CORPUS
from textnuggets import NuggetIndex, maxsim
from textnuggets.errors import ConfigError, IndexFileError, InputError
from textnuggets.model.nuggets import Nuggets
from textnuggets.search.layout_bytes import PLACES, pack_layout, unpack_layout, unpack_windows

# Texts of these tests have characters that the tiny tokenizer does not know.
pytestmark = pytest.mark.filterwarnings("ignore::textnuggets.errors.TextnuggetsWarning")


def test_an_index_finds_what_maxsim_ranks_first(index, model):
    index.add(IDS, CORPUS)
    assert len(index) == 5
    for number, text in enumerate(CORPUS):
        hits = index.search(text, k=5)
        assert hits[0].id == IDS[number]
        expected = np.sort(maxsim(model.encode(text, ratio=0.2), model.encode(CORPUS, ratio=0.2)))[::-1]
        assert [hit.score for hit in hits] == pytest.approx(expected.tolist(), abs=2e-3)  # float16 is stored


def test_queries_have_the_requested_ratio_or_the_models_own(model, tmp_path):
    def ratio_of(name, **settings):
        with NuggetIndex.create(tmp_path / name, model, ratio=0.2, **settings) as made:
            return made.manifest.query_ratio

    assert ratio_of("same") == 0.2
    model.config.query_ratio = 0.5
    try:
        assert ratio_of("own") == 0.5
        assert ratio_of("asked", query_ratio=1.0) == 1.0
        with pytest.raises(ConfigError, match=r"ratio must lie in \(0, 1\], got 0"):
            ratio_of("none", query_ratio=0.0)
        with NuggetIndex.create(tmp_path / "matches", model, ratio=0.2) as made:
            made.add(IDS, CORPUS)
            assert len(made.search(CORPUS[0], k=1)[0].matches) == len(model.encode(CORPUS[0], ratio=0.5))
    finally:
        model.config.query_ratio = None


def test_a_hit_has_the_span_that_matched_each_nugget_of_the_query(index, model):
    index.add(IDS, CORPUS)
    query = CORPUS[1]
    (hit,) = index.search(query, k=1)
    nuggets = model.encode(query, ratio=0.2)
    for match, (start, end) in zip(hit.matches, nuggets.segments.tolist(), strict=True):
        assert match.query == (start, end) or start == end
    # The query is the document: every nugget matches itself.
    for match in hit.matches:
        assert match.document == match.query
        assert match.document[0] < match.document[1]  # also for the first and last token of the text
        assert match.score == pytest.approx(1, abs=2e-3)
    assert hit.text == query
    assert not hit.regenerated


def test_metadata_can_be_filtered_by(index):
    years = [
        {"year": 1990 + i, "tag": "even" if i % 2 == 0 else "odd", "ok": i > 2, "x": 0.5 * i}
        for i in range(5)
    ]
    index.add(IDS, CORPUS, years)

    def found(**wanted):
        return sorted(hit.id for hit in index.search(CORPUS[0], k=9, filter=wanted))

    assert found(year=1991) == ["doc-1"]
    assert found(year="1991") == ["doc-1"]
    assert found(tag="even") == ["doc-0", "doc-2", "doc-4"]
    assert found(tag="even", year=1992) == ["doc-2"]
    assert found(ok=True) == found(ok="true") == ["doc-3", "doc-4"]
    assert found(x=1.5) == found(x="1.5") == ["doc-3"]
    assert found(tag="none") == []
    index.add(["list"], ["A list."], [{"a.b": ["x", 2], "c": {"d": 1}, "e": None, "f": 3.0}])
    assert found(**{"a.b": "x"}) == found(**{"a.b": 2}) == found(e="null") == found(f=3) == ["list"]
    assert index.search(CORPUS[3], k=1)[0].metadata == years[3]


@pytest.mark.parametrize("query", ["", "  \n ", None])
def test_a_query_of_nothing_is_an_error(index, query):
    with pytest.raises(InputError, match="the query is empty"):
        index.search(query)


def test_a_filter_without_a_comparable_value_is_refused(index):
    index.add(IDS[:1], CORPUS[:1])
    for wanted in ({"a": []}, {"a": {"b": 1}}, {"a": "\ud800"}):
        with pytest.raises(InputError, match="filter"):
            index.search("cat", filter=wanted)


def test_text_that_is_not_stored_is_regenerated_and_marked(copier, tmp_path):
    with NuggetIndex.create(tmp_path / "index", copier, store_text=False) as index:
        index.add(IDS, CORPUS)
        (hit,) = index.search(CORPUS[0], k=1)
        assert hit.regenerated
        assert hit.text == CORPUS[0]
    assert CORPUS[0][:20].encode() not in b"".join(f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())


def test_a_regenerated_text_has_its_line_breaks(copier, tmp_path):
    with NuggetIndex.create(tmp_path / "index", copier, store_text=False) as index:
        text = CORPUS[0].replace(", ", ",\n\n\t")
        index.add(["a"], [text])
        (hit,) = index.search(CORPUS[0], k=1)
        assert hit.text == text


def test_a_model_without_a_decoder_regenerates_no_text(model, tmp_path):
    with NuggetIndex.create(tmp_path / "index", model, store_text=False) as index:
        index.add(IDS, CORPUS)
        (hit,) = index.search(CORPUS[0], k=1)
        assert hit.text is None
        assert not hit.regenerated
        assert hit.matches


def test_a_layout_comes_back_as_it_was(copier):
    nuggets = copier.encode(" ".join(CORPUS))
    norms = np.linalg.norm(nuggets.vectors, axis=1)
    payload, units = {PLACES: pack_layout(nuggets, norms, True)}, nuggets.vectors / norms[:, None]
    again = unpack_layout(payload, units)
    for name in ("positions", "spans", "windows"):
        assert (getattr(again, name) == getattr(nuggets, name)).all()
    assert again.scores == pytest.approx(nuggets.scores, rel=1e-3)
    assert again.vectors == pytest.approx(nuggets.vectors, rel=1e-3)
    assert copier.reconstruct(again, num_beams=1) == copier.reconstruct(nuggets, num_beams=1)
    for broken in (None, "", "x", payload[PLACES][:-8], payload[PLACES] + "AAAA"):
        with pytest.raises(IndexFileError, match="damaged"):
            unpack_layout({PLACES: broken}, units)


def test_a_layout_takes_a_few_bytes_for_each_nugget(model):
    nuggets = model.encode(" ".join(CORPUS * 20), ratio=0.2)
    norms = np.linalg.norm(nuggets.vectors, axis=1)
    for decodable, most in ((False, 4.5), (True, 10)):
        assert len(pack_layout(nuggets, norms, decodable)) < most * len(nuggets) + 100


def test_a_layout_of_large_numbers_and_steps_back_comes_back_as_it_was():
    nuggets = Nuggets(
        vectors=np.eye(3, dtype=np.float32),
        scores=np.array([1e9, 0, -1e-9], np.float32),
        positions=np.array([5, 400, 80_000]),
        spans=np.array([[3, 3], [2, 900], [900, 70_000]]),
        tokens=("",) * 3,
        windows=np.array([[2, 500, 0, 900], [1, 79_999, 900, 70_000]]),
    )
    again = unpack_layout({PLACES: pack_layout(nuggets, np.ones(3), True)}, nuggets.vectors)
    for name in ("scores", "positions", "spans", "windows"):
        assert (getattr(again, name) == getattr(nuggets, name)).all()


def test_a_layout_of_an_early_version_is_still_read(copier):
    nuggets = copier.encode(" ".join(CORPUS))
    norms = np.linalg.norm(nuggets.vectors, axis=1).astype("<f4")
    integers = np.concatenate(
        [[len(nuggets.windows)], nuggets.windows.ravel(), nuggets.positions, nuggets.spans.ravel()]
    )
    data = integers.astype("<i4").tobytes() + nuggets.scores.astype("<f4").tobytes() + norms.tobytes()
    payload = {"layout": b64encode(data).decode()}
    again = unpack_layout(payload, nuggets.vectors / norms[:, None])
    for name in ("scores", "positions", "spans", "windows"):
        assert (getattr(again, name) == getattr(nuggets, name)).all()
    assert again.vectors == pytest.approx(nuggets.vectors, abs=1e-5)
    assert (unpack_windows(payload) == nuggets.windows).all()
    with pytest.raises(IndexFileError, match="damaged"):
        unpack_layout({"layout": payload["layout"][:-8]}, nuggets.vectors)


def test_scores_of_vectors_of_four_bits_never_exceed_one_and_fall(model, tmp_path):
    with NuggetIndex.create(tmp_path / "index", model, ratio=0.2, dtype="int4") as index:
        index.add(IDS, CORPUS)
        for number, text in enumerate(CORPUS):
            hits = index.search(text)
            scores = [hit.score for hit in hits]
            assert hits[0].id == IDS[number]
            assert 0.97 < scores[0] <= 1
            assert scores == sorted(scores, reverse=True)
            for hit in hits:
                assert hit.score == pytest.approx(np.mean([match.score for match in hit.matches]), abs=1e-5)
