"""Retrieval systems by name, and the ways to reduce token vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import textnuggets
from tests.tiny import CORPUS
from textnuggets.evaluate.pooling_baselines import REDUCTIONS, ward
from textnuggets.evaluate.systems import make_system
from textnuggets.model.maxsim import one_way


@given(st.integers(1, 40), st.floats(0.05, 1.0), st.sampled_from(["every", "random", "chunk_means", "ward"]))
def test_every_rule_keeps_as_many_vectors_as_asked_for(n, share, method):
    vectors = np.random.default_rng(n).normal(size=(n, 8)).astype(np.float32)
    k = max(1, round(n * share))
    found = REDUCTIONS[method](vectors, k)
    assert found.shape == (k, 8)


def test_ward_is_token_pooling_of_sentence_transformers():
    from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling

    vectors = np.random.default_rng(0).normal(size=(40, 16)).astype(np.float32)
    unit = torch.nn.functional.normalize(torch.from_numpy(vectors), dim=-1)
    theirs = HierarchicalTokenPooling(pool_factor=10, num_protected_tokens=0).pool([unit])[0].numpy()
    ours = ward(vectors, 4)
    ours = ours / np.linalg.norm(ours, axis=1, keepdims=True)
    order = [row.tolist() for row in sorted(theirs, key=lambda r: r[0])]
    assert sorted(ours.tolist(), key=lambda r: r[0]) == [pytest.approx(row, abs=1e-5) for row in order]


def test_all_tokens_of_a_system_are_those_of_the_encoder(models):
    system = make_system(f"{models / 'bare'}:all", one_way)
    scores = system.read(CORPUS[:1], CORPUS)(0, range(5))
    model = textnuggets.NuggetModel.from_backbone(
        models / "bare", textnuggets.NuggetConfig(selector="all_tokens", scorer_layer=0, feedback=False)
    )
    expected = textnuggets.maxsim(model.encode(CORPUS[0]), model.encode(CORPUS))
    assert np.abs(scores - expected).max() < 1e-4  # documents are stored in float16


def test_queries_may_have_another_ratio(models):
    name = f"{models / 'nuggets'}@0.2"
    plain, richer = (make_system(name, one_way, ratio) for ratio in (None, 1.0))
    texts = (CORPUS[:1], CORPUS)
    assert plain.read(*texts)(0, [1]) != richer.read(*texts)(0, [1])
    assert plain.vectors == richer.vectors


def test_a_models_own_ratio_of_queries_holds_for_its_nuggets_alone(models, tmp_path):
    model = textnuggets.load(models / "nuggets")
    model.config.query_ratio = 0.5
    model.save_pretrained(tmp_path / "own")
    names = (f"{tmp_path / 'own'}@0.2", f"{tmp_path / 'own'}:chunk_means@0.2")
    assert [make_system(name, one_way).query_ratio for name in names] == [0.5, 0.2]
    assert make_system(names[0], one_way, 1.0).query_ratio == 1.0
    for name in names:
        named = make_system(f"{name}/0.25", one_way, 1.0)
        assert (named.ratio, named.query_ratio) == (0.2, 0.25)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x:clusters@0.1", "no method 'clusters'; choose one of all, mean"),
        ("x@ten", "the ratio 'ten' is not a number"),
        ("x@", "the ratio '' is not a number"),
        ("x@2", "ratio must lie in"),
        ("x@0.1/2", "ratio must lie in"),
        ("x@0.1/0.2/0.3", "one ratio, or two"),
        ("x:passages@0.1", "the number of words of a passage, such as passages@100"),
        (f"x:passages@{'9' * 5000}", "the number of words of a passage, such as passages@100"),
        ("x:passages@0", "the number of words of a passage, such as passages@100"),
        ("x:passages@9/9", "the number of words of a passage, such as passages@100"),
        ("nowhere/at/all", "cannot load 'nowhere/at/all': no such folder"),
    ],
)
def test_an_invalid_system_is_named(name, message):
    with pytest.raises(textnuggets.TextnuggetsError, match=message):
        make_system(name, one_way)
