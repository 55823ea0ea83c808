"""A nugget head on the token vectors of other late-interaction encoders."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.multi_vector_encoder.losses import MultiVectorMultipleNegativesRankingLoss

from tests.integrations.setting import save_colbert
from tests.tiny import CORPUS
from textnuggets import NuggetConfig, NuggetModel
from textnuggets.errors import BackboneError, CheckpointError, ConfigError
from textnuggets.integrations.nugget_head import add_nugget_head
from textnuggets.integrations.nugget_module import StraightThrough
from textnuggets.model.budget import nugget_count
from textnuggets.model.maxsim import unit


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def colbert(request, tmp_path_factory):
    """The folder of a tiny ColBERT model."""
    folder = tmp_path_factory.mktemp("colbert")
    save_colbert(folder, request.param)
    return str(folder)


def test_a_nugget_model_on_the_checkpoint_begins_with_its_vectors(colbert, tmp_path):
    encoder = load(colbert)
    encoder[2].skiplist_words = []
    encoder[2].resolve_with_tokenizer(encoder.tokenizer)
    config = NuggetConfig(selector="all_tokens", scorer_layer=0, feedback=False, residual="off")
    model = NuggetModel.from_backbone(colbert, config)
    assert model.dim == 16
    expected = encoder.encode_document(CORPUS, prompt="", convert_to_numpy=True)
    for nuggets, vectors in zip(model.encode(CORPUS), expected, strict=True):
        assert np.abs(unit(nuggets, "text") - vectors).max() < 1e-5
    model.save_pretrained(tmp_path / "model")
    again = NuggetModel.from_pretrained(tmp_path / "model").encode(CORPUS[0])
    assert np.array_equal(again.vectors, model.encode(CORPUS[0]).vectors)
    with pytest.raises(ConfigError, match=r"dim is 8, but the projection of .* has 16 dimensions"):
        NuggetModel.from_backbone(colbert, NuggetConfig(scorer_layer=1, dim=8))


def test_a_projection_that_is_no_matrix_alone_is_refused(colbert, tmp_path):
    folder = shutil.copytree(colbert, tmp_path / "copy")
    settings = json.loads((folder / "1_Dense" / "config.json").read_text())
    (folder / "1_Dense" / "config.json").write_text(json.dumps(settings | {"bias": True}))
    with pytest.raises(BackboneError, match="use add_nugget_head"):
        NuggetModel.from_backbone(folder, NuggetConfig(scorer_layer=1))
    (folder / "modules.json").write_text('[{"type": "x.Dense", "path": "../elsewhere"}]')
    with pytest.raises(CheckpointError, match="plain name"):
        NuggetModel.from_backbone(folder, NuggetConfig(scorer_layer=1))
    (folder / "modules.json").write_text('[{"kind": 1}')
    with pytest.raises(CheckpointError):
        NuggetModel.from_backbone(folder, NuggetConfig(scorer_layer=1))
    (folder / "modules.json").write_text('[{"type": "x.Dense", "path": "1_Dense"}, {"type": "x.Pooling"}]')
    assert NuggetModel.from_backbone(folder, NuggetConfig(scorer_layer=1)).dim == 32


def load(folder):
    return MultiVectorEncoder(folder, device="cpu")


def test_nuggets_are_chunk_means_of_the_encoders_token_vectors(colbert):
    plain = load(colbert)
    head = add_nugget_head(load(colbert), ratio=0.2)
    tokens = plain.encode_document(CORPUS, convert_to_numpy=True)
    nuggets = head.encode_document(CORPUS, convert_to_numpy=True)
    for found, vectors in zip(nuggets, tokens, strict=True):
        k, n = nugget_count(len(vectors), 0.2), len(vectors)
        chunk = np.arange(n) * k // n
        expected = unit(np.stack([vectors[chunk == i].mean(0) for i in range(k)]), "text")
        assert np.abs(found - expected).max() < 1e-5
    queries = (encoder.encode_query(CORPUS[0], convert_to_numpy=True) for encoder in (plain, head))
    assert np.array_equal(*queries)


def test_a_text_of_which_nothing_is_compared_has_no_vectors(colbert):
    head = add_nugget_head(load(colbert), ratio=0.2)
    features = {
        "token_embeddings": torch.ones(2, 3, 16),
        "attention_mask": torch.tensor([[0, 0, 0], [1, 0, 1]]),
    }
    found = head[-1](features)
    assert found["attention_mask"].tolist() == [[False], [True]]
    features["attention_mask"] = torch.zeros(2, 3)
    assert not head[-1](features)["attention_mask"].any()


def test_the_scorer_is_trained_and_saved(colbert, tmp_path):
    head = add_nugget_head(load(colbert), ratio=0.3, selector="spread", gather="attention")
    loss = MultiVectorMultipleNegativesRankingLoss(head, similarity_fct=StraightThrough(head))
    optimizer = torch.optim.SGD(head[-1].parameters(), lr=1.0)
    before = head[-1].scorer.out.weight.detach().clone()
    head.train()
    columns = [(CORPUS[:3], "query"), (CORPUS[2:], "document")]
    loss([{**head.preprocess(texts, task=task), "task": task} for texts, task in columns]).backward()
    optimizer.step()
    assert not torch.equal(head[-1].scorer.out.weight, before)
    head.save_pretrained(str(tmp_path / "trained"))
    again = MultiVectorEncoder(str(tmp_path / "trained"), trust_remote_code=True, device="cpu")
    expected = head.encode_document(CORPUS[0], convert_to_numpy=True)
    assert np.array_equal(again.encode_document(CORPUS[0], convert_to_numpy=True), expected)


def test_a_selector_that_needs_more_than_vectors_is_refused(colbert):
    with pytest.raises(ConfigError, match="selector must be one of even, spread, learned; got 'chunking'"):
        add_nugget_head(load(colbert), selector="chunking")


def test_gathering_by_content_is_refused_without_token_ids(colbert):
    with pytest.raises(ConfigError, match="gather 'content' needs token ids"):
        add_nugget_head(load(colbert), gather="content")
