"""Nuggets of fewer dimensions than the backbone has."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.tiny import CORPUS, tiny_model
from textnuggets import NuggetModel
from textnuggets.config import NuggetConfig
from textnuggets.errors import ConfigError
from textnuggets.model.maxsim import unit
from textnuggets.train.projection import fit_projection, principal_components


def chunk_model(**settings):
    settings = {"selector": "even", "gather": "mean", "feedback": False, "residual": "off", **settings}
    return tiny_model("bert", scorer_layer=0, **settings)


def inputs(model, texts=CORPUS):
    batch = model.tokenizer(texts, return_tensors="pt", padding=True)
    return {name: batch[name] for name in ("input_ids", "attention_mask")}


def test_an_untrained_model_of_equal_chunks_computes_chunk_means():
    model = chunk_model()
    tokens = tiny_model("bert", scorer_layer=0, selector="all_tokens", feedback=False, residual="off")
    tokens.load_state_dict(model.state_dict())
    for found, every in zip(model.encode(CORPUS, ratio=0.25), tokens.encode(CORPUS), strict=True):
        chunks = np.split(every.vectors, found.positions[:-1] + 1)
        assert {len(chunk) for chunk in chunks} <= {3, 4}
        np.testing.assert_allclose(found.vectors, [chunk.mean(0) for chunk in chunks], atol=1e-5)


def test_the_fitted_projection_keeps_the_most_of_the_nuggets_in_its_first_dimensions():
    whole, projected = chunk_model(), chunk_model(dim=8)
    projected.load_state_dict(whole.state_dict() | {"value.weight": projected.value.weight})
    vectors = unit(np.concatenate([n.vectors for n in whole.encode(CORPUS)]), "text")
    fit_projection(projected, [inputs(projected)])
    rows = projected.value.weight.detach()
    assert rows.shape == (projected.dim, whole.dim) == (8, vectors.shape[1])
    assert torch.allclose(rows @ rows.T, torch.eye(8), atol=1e-5)
    _, singular, _ = np.linalg.svd(vectors)
    kept = np.square(vectors @ rows.numpy().T).sum(0)
    np.testing.assert_allclose(kept, np.square(singular[:8]), rtol=1e-3)


@pytest.mark.parametrize(
    ("whiten", "expected"), [(0.0, [9.0, 4.0, 1.0]), (0.25, [3.0, 2.0, 1.0]), (0.5, [1.0, 1.0, 1.0])]
)
def test_whitening_takes_away_the_root_or_all_of_the_difference_between_components(whiten, expected):
    turn = torch.linalg.qr(
        torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    )[0]
    moments = turn @ torch.diag(torch.tensor([1.0, 9.0, 0.25, 4.0], dtype=torch.float64)) @ turn.T
    projection = principal_components(moments, 3, whiten)
    projected = projection @ moments @ projection.T
    found = projected.diag() / projected[2, 2]
    np.testing.assert_allclose(found.tolist(), expected, rtol=1e-6)
    np.testing.assert_allclose(projected.tolist(), torch.diag(projected.diag()).tolist(), atol=1e-9)


def test_a_truncated_model_returns_the_first_dimensions(tmp_path):
    model = chunk_model(dim=16)
    fit_projection(model, [inputs(model)])
    before = model.encode(CORPUS, ratio=0.5)
    assert model.truncate(4) is model
    model.save_pretrained(tmp_path / "model")
    after = NuggetModel.from_pretrained(tmp_path / "model").encode(CORPUS, ratio=0.5)
    for first, second in zip(before, after, strict=True):
        np.testing.assert_allclose(first.vectors[:, :4], second.vectors, atol=1e-6)
    with pytest.raises(ConfigError, match="4 dimensions cannot be truncated to 5"):
        model.truncate(5)
    with pytest.raises(ConfigError, match="dim must be a whole number of at least 1, got 0"):
        model.truncate(0)


def test_dimensions_must_fit_the_backbone():
    with pytest.raises(ConfigError, match="dim is 999, but the hidden size of the backbone is"):
        chunk_model(dim=999)
    with pytest.raises(ConfigError, match="its decoder reads nuggets of that size"):
        tiny_model("bart", dim=4)
    with pytest.raises(ConfigError, match="a model that decodes them needs all"):
        tiny_model("bart").truncate(4)
    with pytest.raises(ConfigError, match="dim must be a whole number of at least 1, got 0"):
        NuggetConfig(dim=0)
