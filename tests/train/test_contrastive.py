"""The contrastive objective: pairs, batches with hard negatives, and gradients of scores."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

import textnuggets
from tests.tiny import CORPUS, tiny_model, tiny_tokenizer
from tests.train.setting import losses, make_setting, read_metrics
from textnuggets.data.packed import load_corpus, tokenizers_of
from textnuggets.errors import ConfigError
from textnuggets.evaluate.pooling_baselines import chunk_means
from textnuggets.model.budget import nugget_count
from textnuggets.model.maxsim import unit
from textnuggets.model.token_encoder import load_token_encoder
from textnuggets.train.build import build_model
from textnuggets.train.maxsim import Side, answers, similarity
from textnuggets.train.objectives.contrastive import contrastive_loss, distilling_loss, encode_side, in_chunks
from textnuggets.train.pairs import PER_RECORD, ArticlePairs, PairBatches
from textnuggets.train.recipe_io import read_recipe
from textnuggets.train.run import train

CONTRASTIVE = [
    "objective.name=contrastive",
    "objective.ratios=[0.25, 0.5]",
    "optimizer.batch_tokens=512",
    "report.ratios=[0.25]",
]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("similar")
    made = make_setting(folder, "bert")
    articles = [
        {
            "sections": [
                {"head": "", "paras": [CORPUS[i % 5]]},
                {"head": "x", "paras": [CORPUS[(i + j) % 5] for j in (1, 2, 3)]},
            ]
        }
        for i in range(12)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(article) + "\n" for article in articles))
    return made


@pytest.fixture(scope="module")
def corpus(recipe):
    read = read_recipe(recipe, CONTRASTIVE)
    return load_corpus(read.data.train, read.packing, tokenizers_of(build_model(read), read.packing))


def forward(model, texts, ratio=0.25):
    batch = model.tokenizer(texts, return_tensors="pt", padding=True)
    return encode_side(model, {name: batch[name] for name in ("input_ids", "attention_mask")}, ratio)


def test_similarity_is_the_maxsim_an_index_computes():
    model = tiny_model("bert", gather="mean")
    with torch.no_grad():
        found = similarity(forward(model, CORPUS[:2]), forward(model, CORPUS))
    expected = textnuggets.maxsim(model.encode(CORPUS[:2], ratio=0.25), model.encode(CORPUS, ratio=0.25))
    assert np.abs(found.numpy() - expected).max() < 1e-5


def test_the_scorer_gets_gradients_from_both_sides():
    model = tiny_model("bert")
    for query, document in ((0.25, 1.0), (1.0, 0.25)):
        model.zero_grad()
        found = similarity(forward(model, CORPUS, query), forward(model, CORPUS, document))
        contrastive_loss(found, 0.05).backward()
        assert model.scorer.out.weight.grad.abs().max() > 0


def test_a_score_rises_if_its_nugget_matches_the_right_query_and_falls_otherwise():
    def side(vectors, scores):
        made = torch.nn.functional.normalize(torch.tensor(vectors), dim=-1)
        return Side(made, scores, torch.ones(made.shape[:2], dtype=torch.bool))

    scores = torch.zeros(2, 2, requires_grad=True)
    # The first query belongs to the first document, but the first nugget of the second document is closer to it.
    query = side([[[1.0, 0.0]], [[0.0, 1.0]]], torch.zeros(2, 1))
    documents = side([[[0.8, 0.6], [-1.0, 0.0]], [[1.0, 0.1], [0.0, 1.0]]], scores)
    loss = contrastive_loss(similarity(query, documents), 0.5)
    loss.backward()
    direction = -scores.grad
    assert direction[0, 0] > 0 > direction[1, 0]
    assert direction[0, 1] == 0  # the best match of no query


def test_the_distillation_loss_is_zero_only_if_the_teacher_agrees_up_to_scale_and_shift():
    scores = torch.tensor([[0.9, 0.1, 0.3], [0.2, 0.8, 0.1]])
    assert distilling_loss(scores, 3 * scores + 0.1, 0.5).numpy() == pytest.approx(0, abs=1e-5)
    sharp, soft = (distilling_loss(scores, scores.flip(0), temperature) for temperature in (0.2, 2.0))
    assert (sharp > 1).all()
    assert (soft < 0.5).all()
    assert (soft > 0.01).all()


@pytest.mark.parametrize("ratio", [0.1, 0.25, 0.6, 1.0])
def test_the_chunks_of_a_teacher_are_those_of_the_pooling_baseline(ratio):
    """The loss uses normalized vectors."""
    tokens = forward(tiny_model("bert", selector="all_tokens"), CORPUS, 1.0)
    found = in_chunks(tokens, ratio)
    for vectors, kept, chunked, left in zip(
        tokens.vectors, tokens.kept, found.vectors, found.kept, strict=True
    ):
        alone = vectors[kept].detach().numpy()
        expected = unit(chunk_means(alone, nugget_count(len(alone), ratio)), "text")
        assert int(left.sum()) == len(expected)
        assert np.abs(chunked[left].detach().numpy() - expected).max() < 1e-5


def test_the_vectors_of_a_text_do_not_depend_on_the_rest_of_the_batch():
    model = tiny_model("bert", gather="mean")
    texts = [CORPUS[i % 5][: 10 + 2 * i] for i in range(20)]
    with torch.no_grad():
        together = forward(model, texts)
        for row, text in enumerate(texts):
            alone = forward(model, [text])
            count = int(alone.kept.sum())
            assert int(together.kept[row].sum()) == count
            assert (together.vectors[row, :count] - alone.vectors[0, :count]).abs().max() < 1e-5
        found = answers(together, together)
    # The best match of every nugget in its own text is itself.
    own = found[torch.arange(20), :, torch.arange(20)][together.kept]
    assert (own - 1).abs().max() < 1e-5


def test_a_batch_holds_documents_of_an_article_and_of_similar_ones(corpus):
    records = ArticlePairs(corpus, []).records
    assert len(records) == 12
    # Articles 0, 5 and 10 have the same text, so BM25 finds them for each other.
    assert set(records.nearest[0][:2]) == {5, 10}
    batches = list(PairBatches(records, 6, steps=4, seed=0))
    assert [len(batch) for batch in batches] == [6] * 4
    assert batches == list(PairBatches(records, 6, steps=4, seed=0))
    assert batches != list(PairBatches(records, 6, steps=4, seed=1))
    for batch in batches:
        rows = [pair.row for pair in batch]
        assert len(set(rows)) == len(rows)
        numbers = corpus.records[rows].tolist()
        assert max(numbers.count(number) for number in numbers) <= PER_RECORD
        near = {numbers[0], *records.nearest[numbers[0]]}
        assert sum(number in near for number in numbers) > 1
        for number, pair in zip(numbers, batch, strict=True):
            assert (
                pair.kind != "lead" or numbers.count(number) == 1
            )  # no negative comes from the same article
    kinds = {frozenset(pair.kind for pair in batch) for batch in PairBatches(records, 6, steps=30, seed=2)}
    assert frozenset({"lead"}) in kinds
    assert frozenset({"views", "sentence"}) in kinds


def test_two_processes_take_turns_with_the_batches(corpus):
    records = ArticlePairs(corpus, []).records
    alone = list(PairBatches(records, 4, steps=4, seed=0))
    halves = [list(PairBatches(records, 4, steps=2, seed=0, process=i, processes=2)) for i in (0, 1)]
    assert alone == [halves[0][0], halves[1][0], halves[0][1], halves[1][1]]


def test_both_sides_of_a_pair_consist_of_whole_sentences_of_the_document(corpus):
    pairs, tokenizer = ArticlePairs(corpus, tiny_tokenizer().all_special_ids), tiny_tokenizer()
    kinds = set()
    for batch in pairs.batches(6, steps=20, seed=3):
        for pair in batch:
            kinds.add(pair.kind)
            query, document = pairs[pair]
            ((source, _),), ((lead, _),) = corpus.texts([pair.row]), corpus.texts([pair.partner])
            for side, text in ((query, lead), (document, source)):
                whole = corpus[pair.row if text is source else pair.partner].input_ids.tolist()
                ids = side.input_ids.tolist()
                assert ids[0] == whole[0]
                assert ids[-1] == whole[-1]
                assert len(ids) > 2
                shown = tokenizer.decode(ids, skip_special_tokens=True)
                kept = [s for s in CORPUS if s in shown]
                if "empty" not in shown and kept:
                    assert all(s in text for s in kept)
                assert side.sentence_ends[-1] == len(ids) - 2
            if pair.kind == "sentence" and len(corpus[pair.row].sentence_ends) > 1:
                assert len(query.sentence_ends) == 1
    assert kinds == {"views", "sentence", "lead"}


def test_training_reduces_the_loss_and_resumes(recipe, tmp_path):
    changes = [
        *CONTRASTIVE,
        "optimizer.steps=12",
        "report.keep=9",
        "objective.distill=0.3",
        "model.gather=mean",
        "objective.query_ratios=[0.5, 1.0]",
    ]
    best = train(read_recipe(recipe, changes), tmp_path / "run")
    found = losses(tmp_path / "run")
    assert np.mean([found[i] for i in (10, 11, 12)]) < np.mean([found[i] for i in (1, 2, 3)])
    assert all("accuracy" in record for record in read_metrics(tmp_path / "run") if "loss" in record)
    assert any("eval_accuracy_r0.25" in record for record in read_metrics(tmp_path / "run"))
    assert textnuggets.load(best).config.gather == "mean"
    # Like a run that was killed after step 6.
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    for step in (9, 12):
        shutil.rmtree(tmp_path / "other" / f"checkpoint-{step}")
    train(read_recipe(recipe, changes), tmp_path / "other", resume=True)
    assert losses(tmp_path / "other") == found


def test_the_loss_of_accumulated_batches_is_their_mean(recipe, tmp_path):
    changes = [
        *CONTRASTIVE,
        "optimizer.steps=2",
        "report.evaluate_every=2",
        "report.save_every=2",
        "optimizer.lr=1e-9",
    ]
    train(
        read_recipe(recipe, [*changes, "optimizer.accumulate=2", "objective.ratios=[0.25]"]), tmp_path / "two"
    )
    train(read_recipe(recipe, [*changes, "optimizer.steps=4", "objective.ratios=[0.25]"]), tmp_path / "four")
    single, double = losses(tmp_path / "four"), losses(tmp_path / "two")
    for step in (1, 2):
        assert double[step] == pytest.approx((single[2 * step - 1] + single[2 * step]) / 2, rel=1e-3)


def test_the_token_vectors_of_a_nugget_model_are_those_of_its_encoder(tmp_path):
    model = tiny_model("bert", gather="mean")
    with torch.no_grad():
        model.feedback.types.weight.normal_()
    model.save_pretrained(tmp_path / "nuggets")
    model.backbone.save_pretrained(tmp_path / "bare")
    tiny_tokenizer().save_pretrained(tmp_path / "bare")
    found, bare = (load_token_encoder(tmp_path / name).encode(CORPUS[0]) for name in ("nuggets", "bare"))
    assert len(found) == found.token_count
    assert np.abs(found.vectors - bare.vectors).max() < 1e-6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("optimizer.batch_tokens=200", "to hold two pairs"),
        ("objective.temperature=0.0", "objective.temperature must be above 0"),
        ("objective.distill_temperature=-1.0", "distill_temperature must be above 0"),
        ("objective.distill=2.0", "distill must be at most 1"),
        ("objective.teacher=x", "has no effect"),
        ("objective.teacher_ratios=[0.5, 0.5]", "has no effect"),
        ("objective.hide=0.1", "cannot be used with the objective 'contrastive'"),
    ],
)
def test_invalid_settings_are_refused(recipe, change, message):
    with pytest.raises(ConfigError, match=message):
        read_recipe(recipe, [*CONTRASTIVE, change])


def test_contrastive_settings_are_refused_with_other_objectives(recipe):
    with pytest.raises(ConfigError, match=r"objective\.distill cannot be used with"):
        read_recipe(recipe, ["objective.distill=0.5"])
