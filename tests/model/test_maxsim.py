"""Mean-MaxSim (Eq. 10), compared with its definition and with sentence-transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.tiny import CORPUS, tiny_model
from textnuggets import NuggetIndex, maxsim
from textnuggets.errors import InputError, TextnuggetsWarning
from textnuggets.model import maxsim as module
from textnuggets.model.maxsim import SIMILARITIES, both_ways, matching, one_way, unit


def vectors(rng, count, width=6):
    return [rng.normal(size=(k, width)).astype(np.float32) for k in rng.integers(1, 7, size=count)]


def by_definition(query, document):
    cosines = [[q @ d / np.linalg.norm(q) / np.linalg.norm(d) for d in document] for q in query]
    return sum(max(row) for row in cosines) / len(query)


@given(seed=st.integers(0, 2**31), block=st.sampled_from([1, 40, 16_000_000]))
def test_it_is_the_mean_over_query_vectors_of_the_best_cosine(seed, block):
    rng = np.random.default_rng(seed)
    queries, documents = vectors(rng, 3), vectors(rng, 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        found = maxsim(queries, documents)
    assert found.shape == (3, 5)
    np.testing.assert_allclose(found, [[by_definition(q, d) for d in documents] for q in queries], atol=1e-5)


def test_one_text_drops_its_axis(model):
    nuggets = model.encode(CORPUS)
    assert maxsim(nuggets[0], nuggets[0]) == pytest.approx(1.0)
    assert isinstance(maxsim(nuggets[0], nuggets[1].vectors), float)
    assert maxsim(nuggets[0], nuggets).shape == (len(CORPUS),)
    assert maxsim(nuggets, nuggets[0]).shape == (len(CORPUS),)
    assert maxsim(nuggets, nuggets[:2]).shape == (len(CORPUS), 2)
    assert maxsim([], nuggets).shape == (0, len(CORPUS))
    assert maxsim(nuggets[0], []).shape == (0,)


def test_it_agrees_with_sentence_transformers():
    from sentence_transformers.util import maxsim as peer

    rng = np.random.default_rng(0)
    queries, documents = vectors(rng, 4), vectors(rng, 5)
    unit = [
        [torch.nn.functional.normalize(torch.tensor(v), dim=-1) for v in side]
        for side in (queries, documents)
    ]
    sums = peer(*unit).numpy()
    lengths = np.array([[len(q)] for q in queries])
    np.testing.assert_allclose(maxsim(queries, documents), sums / lengths, atol=1e-5)


def test_a_zero_vector_has_cosine_zero_instead_of_nan():
    zero, ones = np.zeros((1, 4), np.float32), np.ones((2, 4), np.float32)
    assert maxsim(zero, ones) == 0.0
    np.testing.assert_allclose(maxsim(ones, [zero, ones]), [0.0, 1.0], atol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_very_small_and_large_vectors_compare_like_others(scale):
    rng = np.random.default_rng(0)
    (query, document), other = vectors(rng, 2), np.float32(scale)
    assert maxsim(query * other, document) == pytest.approx(maxsim(query, document), abs=1e-5)
    assert maxsim(query, document * other) == pytest.approx(maxsim(query, document), abs=1e-5)


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int64])
def test_numbers_of_any_kind_compare(kind):
    one, other = np.array([[3, 4], [0, 1]], kind), np.array([[4, 3]], kind)
    assert maxsim(one, other) == pytest.approx((0.96 + 0.6) / 2, abs=1e-5)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(InputError, match=r"vectors of \[3, 4\] dimensions do not compare"):
        maxsim(np.ones((1, 4)), [np.ones((1, 4)), np.ones((1, 3))])
    with pytest.raises(InputError, match=r"query must be \(k, d\) vectors"):
        maxsim(np.ones(4), np.ones((1, 4)))
    with pytest.raises(InputError, match=r"document 1 must be"):
        maxsim(np.ones((1, 4)), [np.ones((1, 4)), np.ones((0, 4))])
    with pytest.raises(InputError, match="not finite"):
        maxsim(np.full((1, 4), np.nan), np.ones((1, 4)))
    with pytest.raises(InputError, match="document 1 holds values that are not finite"):
        maxsim(np.ones((1, 4)), [np.ones((1, 4)), np.full((2, 4), np.inf)])


def test_tensors_compare_as_arrays_do(model):
    nuggets = model.encode(CORPUS)
    tensors = model.encode(CORPUS, convert_to_tensor=True)
    assert torch.equal(tensors[1], nuggets[1].to_tensor())
    np.testing.assert_array_equal(maxsim(tensors[0], tensors), maxsim(nuggets[0], nuggets))


def test_a_model_compares_queries_with_documents_and_always_returns_a_matrix(model):
    nuggets = model.encode(CORPUS)
    np.testing.assert_array_equal(model.similarity(nuggets, nuggets), maxsim(nuggets, nuggets))
    assert model.similarity(nuggets[0], nuggets).shape == (1, len(CORPUS))
    assert model.similarity(nuggets[0], nuggets[1]).shape == (1, 1)


def test_comparing_vectors_that_were_made_to_be_decoded_warns(model, tmp_path):
    decoded = tiny_model("bart")
    decoded.config.objective = "autoencode"
    nuggets = decoded.encode(CORPUS)
    with pytest.warns(TextnuggetsWarning, match="not to be compared") as warned:
        maxsim(nuggets[0], nuggets)
    assert len(warned) == 1
    with pytest.warns(TextnuggetsWarning, match="not to be compared"):
        NuggetIndex.create(tmp_path / "index", decoded).close()
    maxsim(model.encode(CORPUS[0]), model.encode(CORPUS))


def test_the_three_similarities_agree_on_one_vector_and_differ_on_several():
    random = np.random.default_rng(0)
    one = [unit(random.normal(size=(1, 4)), "text") for _ in range(3)]
    for similarity in SIMILARITIES.values():
        assert similarity(one[0], one).tolist() == pytest.approx(one_way(one[0], one).tolist(), abs=1e-6)
    query, document = (
        unit(np.array(vectors), "text")
        for vectors in ([[1.0, 0.0], [1.0, 0.1]], [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    )
    # Both query vectors want the same document vector; only one of them may have it.
    assert matching(query, [document])[0] < one_way(query, [document])[0]
    # The one that is left over takes the next best, at right angles; the sum is divided by all query vectors.
    cosine = query @ document.T
    assert matching(query, [document])[0] == pytest.approx((cosine[0, 0] + cosine[1, 1]) / 2)
    assert matching(document, [query])[0] == pytest.approx((cosine[0, 0] + cosine[1, 1]) / 3)
    back = one_way(document, [query])[0]
    assert both_ways(query, [document])[0] == pytest.approx((one_way(query, [document])[0] + back) / 2)
    # The document says things the query does not ask for.
    assert both_ways(query, [document])[0] < one_way(query, [document])[0]
