"""A nugget model as a MultiVectorEncoder of sentence-transformers: vectors, evaluators, folders and losses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.multi_vector_encoder.evaluation import MultiVectorInformationRetrievalEvaluator
from sentence_transformers.multi_vector_encoder.losses import (
    CachedMultiVectorMultipleNegativesRankingLoss,
    MultiVectorDistillKLDivLoss,
    MultiVectorMarginMSELoss,
    MultiVectorMultipleNegativesRankingLoss,
)
from sentence_transformers.multi_vector_encoder.scoring import mean_colbert_scores

import textnuggets
from tests.tiny import CORPUS, tiny_model
from textnuggets.errors import InputError, TextnuggetsWarning
from textnuggets.integrations.nugget_module import StraightThrough
from textnuggets.model.maxsim import unit
from textnuggets.train.maxsim import Side, similarity

LONG = " ".join(CORPUS * 3)  # several windows
TEXTS = [*CORPUS, LONG, ""]


def make_encoder(**settings):
    settings = {"ratio": 0.25, "query_ratio": 0.5, "gather": "mean", **settings}
    return textnuggets.as_sentence_transformer(tiny_model("bert", **settings), device="cpu")


@pytest.mark.parametrize("selector", ["learned", "spread", "sentence_boundary", "mean"])
def test_the_vectors_are_those_of_encode_also_for_long_texts(selector):
    encoder = make_encoder(selector=selector, residual="off")
    model = encoder[0].model
    for ours, theirs in (("encode_query", "encode_query"), ("encode_document", "encode_document")):
        expected = getattr(model, ours)(TEXTS)
        found = getattr(encoder, theirs)(TEXTS, convert_to_numpy=True, batch_size=3)
        assert len(expected[5].windows) > 1
        for vectors, nuggets in zip(found, expected, strict=True):
            assert vectors.shape == nuggets.vectors.shape
            assert np.abs(vectors - unit(nuggets, "text")).max() < 1e-6


def test_the_similarity_is_ours():
    encoder = make_encoder()
    model = encoder[0].model
    found = encoder.similarity(encoder.encode_query(CORPUS[:2]), encoder.encode_document(TEXTS))
    expected = model.similarity(model.encode_query(CORPUS[:2]), model.encode_document(TEXTS))
    assert np.abs(found.numpy() - expected).max() < 1e-5


def test_a_prompt_is_put_before_a_text_and_a_maximum_length_cuts_it():
    encoder = make_encoder()
    with_prompt = encoder.encode_document(CORPUS[0], prompt="The letter, ", convert_to_numpy=True)
    expected = unit(encoder[0].model.encode("The letter, " + CORPUS[0]), "text")
    assert np.abs(with_prompt - expected).max() < 1e-6
    assert encoder.preprocess([LONG], max_length=20)["input_ids"].shape[1] <= 20


def test_what_is_no_text_is_refused():
    with pytest.raises(InputError, match="text 1 is int"):
        make_encoder().encode_document([CORPUS[0], 7])


def test_a_saved_folder_loads_in_both_libraries_with_the_same_vectors(tmp_path):
    encoder = make_encoder()
    encoder.save_pretrained(str(tmp_path / "saved"))
    expected = encoder.encode_document(LONG, convert_to_numpy=True)
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        MultiVectorEncoder(str(tmp_path / "saved"))
    loaded = MultiVectorEncoder(str(tmp_path / "saved"), trust_remote_code=True, device="cpu")
    assert loaded.similarity_fn_name == "meanmaxsim"
    factory = textnuggets.as_sentence_transformer(tmp_path / "saved", device="cpu")
    for other in (loaded, factory):
        assert np.abs(other.encode_document(LONG, convert_to_numpy=True) - expected).max() < 1e-6
    nuggets = textnuggets.load(tmp_path / "saved", device="cpu").encode(LONG)
    assert np.abs(unit(nuggets, "text") - expected).max() < 1e-6


def test_its_evaluator_of_retrieval_runs():
    texts = {str(number): text for number, text in enumerate(CORPUS)}
    evaluator = MultiVectorInformationRetrievalEvaluator(
        texts, texts, {key: {key} for key in texts}, name="tiny"
    )
    results = evaluator(make_encoder(query_ratio=0.25))
    assert results["tiny_meanmaxsim_accuracy@1"] == 1.0


def gradient(loss, features, labels=None):
    """Return the gradients of the scorer and of the rest of the model."""
    module = loss.model[0]
    module.zero_grad()
    torch.manual_seed(0)
    loss(features, labels).backward()
    scorer = [p.grad for p in module.model.scorer.parameters()]
    return scorer, module.model.value.weight.grad


def features_of(encoder, *columns):
    tasks = ["query", *["document"] * (len(columns) - 1)]
    return [
        {**encoder.preprocess(column, task=task), "task": task}
        for column, task in zip(columns, tasks, strict=True)
    ]


def losses(encoder):
    own = StraightThrough(encoder)
    labels = torch.tensor([[0.9, 0.1], [0.8, 0.3], [0.7, 0.0]])
    return {
        "contrastive": (MultiVectorMultipleNegativesRankingLoss(encoder, similarity_fct=own), None),
        "cached": (
            CachedMultiVectorMultipleNegativesRankingLoss(encoder, similarity_fct=own, mini_batch_size=2), None
        ),
        "distilling": (MultiVectorDistillKLDivLoss(encoder, similarity_fct=own.listwise), labels),
        "margin": (MultiVectorMarginMSELoss(encoder, similarity_fct=own.pairwise), labels[:, 0]),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["contrastive", "cached", "distilling", "margin"])
def test_its_losses_train_the_scorer_too(name):
    encoder = make_encoder(freeze=False).train()
    loss, labels = losses(encoder)[name]
    features = features_of(encoder, CORPUS[:3], [LONG, *CORPUS[3:]], CORPUS[1:4])
    scorer, value = gradient(loss, features, labels)
    assert all(part is not None and part.abs().max() > 0 for part in scorer[:2])
    assert value.abs().max() > 0


def test_the_cached_loss_has_the_same_gradients_as_the_plain_one():
    encoder = make_encoder(freeze=False).eval()
    encoder[0].training = True  # without dropout, which differs between the two
    made = losses(encoder)
    features = features_of(encoder, CORPUS[:3], [LONG, *CORPUS[3:]])
    (plain, _), (cached, _) = (gradient(made[name][0], features) for name in ("contrastive", "cached"))
    for one, other in zip(plain, cached, strict=True):
        assert torch.allclose(one, other, atol=1e-7)


def test_the_loss_and_its_gradients_are_those_of_our_own_training():
    encoder = make_encoder(freeze=False).eval()
    encoder[0].training = True
    model = encoder[0].model
    features = features_of(encoder, CORPUS[:3], CORPUS[2:])
    own = StraightThrough(encoder)
    scorer, _ = gradient(MultiVectorMultipleNegativesRankingLoss(encoder, similarity_fct=own), features)

    def side(texts, ratio):
        batch = model.tokenizer(texts, return_tensors="pt", padding=True)
        output = model(batch.input_ids, batch.attention_mask, ratio=ratio)
        vectors = torch.nn.functional.normalize(output.nuggets, dim=-1)
        return Side(vectors, output.token_scores.gather(1, output.positions), output.kept)

    model.zero_grad()
    scores = similarity(side(CORPUS[:3], 0.5), side(CORPUS[2:], 0.25))
    torch.nn.functional.cross_entropy(scores, torch.arange(3)).backward()
    for one, other in zip(scorer, model.scorer.parameters(), strict=True):
        assert torch.allclose(one, other.grad, atol=1e-6)


def test_the_similarities_of_the_losses_keep_their_values():
    encoder = make_encoder().train()
    loss = MultiVectorMultipleNegativesRankingLoss(encoder, similarity_fct=mean_colbert_scores)
    own = MultiVectorMultipleNegativesRankingLoss(encoder, similarity_fct=StraightThrough(encoder))
    encoder.eval()
    features = features_of(encoder, CORPUS[:3], CORPUS[2:])
    plain = loss(features)
    assert torch.allclose(plain, own(features), atol=1e-6)
    encoder[0].training = True
    assert torch.allclose(plain, own(features), atol=1e-6)
    assert torch.allclose(plain, loss(features), atol=1e-6)


def test_an_autoencoder_warns_that_its_vectors_do_not_compare():
    with pytest.warns(TextnuggetsWarning, match="trained to be decoded"):
        make_encoder(objective="autoencode")
