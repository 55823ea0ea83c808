"""The objective `causal`: adapters of decoder-only models, trained on long documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.causal.setting import SEGMENT, save_base
from tests.tiny import CORPUS
from tests.train.setting import losses, read_metrics
from textnuggets import CausalNuggetLM
from textnuggets.errors import ConfigError, InputError
from textnuggets.train.build import build_model
from textnuggets.train.objectives.causal import Extract
from textnuggets.train.recipe_io import read_recipe
from textnuggets.train.run import make_objective, read_corpus, train

RECIPE = """
[model]
backbone = "{folder}/base"
segment = {segment}
scorer_layer = 2
selector = "spread"
ratio = 0.25
rank = 2

[data]
train = ["{folder}/train.jsonl"]
dev = ["{folder}/train.jsonl"]
max_tokens = 64
min_tokens = 40
cache = "{folder}/cache"

[objective]
name = "causal"
ratios = [0.25, 0.5]
distill = 0.5

[optimizer]
steps = 20
batch_tokens = 128
lr = 2e-2

[report]
log_every = 1
evaluate_every = 10
documents = 2
bleu_documents = 0
save_every = 5
"""


@pytest.fixture
def recipe(tmp_path) -> Path:
    save_base(tmp_path / "base")
    texts = [" ".join(CORPUS[(i + j) % len(CORPUS)] for j in range(i + 1)) for i in range(5)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(folder=tmp_path, segment=SEGMENT))
    return path


def objective_of(recipe: Path, *changes: str):
    settings = read_recipe(recipe, list(changes))
    lm = build_model(settings)
    streams = read_corpus(lm, settings, settings.data.train)
    return make_objective(lm, settings, streams, streams), streams


def test_training_lowers_the_loss_and_saves_the_adapter_alone(recipe, tmp_path):
    changes = ["model.rank=8", "objective.distill=0.0", "optimizer.steps=30", "objective.ratios=[0.25]"]
    objective, _ = objective_of(recipe, *changes)
    loss, _, targets = objective.measure(objective.lm, 0.25, 0, 1).tolist()
    best = train(read_recipe(recipe, changes), tmp_path / "run")
    dev = [record["eval_loss"] for record in read_metrics(tmp_path / "run") if "eval_loss" in record]
    assert dev[-1] < dev[0] < loss / targets
    assert all(
        "lora" in name or name.split(".")[0] != "base" for name in load_file(best / "model.safetensors")
    )
    lm = CausalNuggetLM.from_pretrained(best)
    assert lm.scorer.out.weight.abs().max() > 0
    assert lm.feedback.types.weight.abs().max() > 0


def test_in_bfloat16_the_base_is_half_as_large_and_the_adapter_is_not(recipe, tmp_path):
    changes = ["optimizer.precision=bfloat16", "optimizer.steps=2", "report.evaluate_every=2"]
    assert build_model(read_recipe(recipe, changes)).base.dtype == torch.bfloat16
    best = train(read_recipe(recipe, changes), tmp_path / "run")
    assert {value.dtype for value in load_file(best / "model.safetensors").values()} == {torch.float32}


def test_a_resumed_run_has_the_same_losses(recipe, tmp_path):
    short = ["optimizer.schedule=constant"]
    train(read_recipe(recipe, [*short, "optimizer.steps=10"]), tmp_path / "whole")
    train(read_recipe(recipe, [*short, "optimizer.steps=5", "report.evaluate_every=5"]), tmp_path / "run")
    train(read_recipe(recipe, [*short, "optimizer.steps=10"]), tmp_path / "run", resume=True)
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def test_a_trained_adapter_can_be_trained_further(recipe, tmp_path):
    best = train(read_recipe(recipe, ["optimizer.steps=5", "report.evaluate_every=5"]), tmp_path / "run")
    text = recipe.read_text().replace(f'backbone = "{tmp_path}/base"', f'start = "{best}"')
    recipe.write_text(text)
    further = build_model(read_recipe(recipe))
    torch.testing.assert_close(
        further.scorer.out.weight, CausalNuggetLM.from_pretrained(best).scorer.out.weight
    )
    with pytest.raises(ConfigError, match=r"model\.segment is 16, but .* has 8"):
        build_model(read_recipe(recipe, ["model.segment=16"]))


def test_an_untrained_model_with_all_tokens_does_not_diverge_from_its_base(recipe):
    objective, _ = objective_of(recipe, "objective.distill=1.0", "objective.ratios=[1.0]")
    loss, _, targets = objective.measure(objective.lm, 1.0, 0, 1).tolist()
    assert abs(loss / targets) < 1e-5
    loss, _, targets = objective.measure(objective.lm, 0.25, 0, 1).tolist()
    assert loss / targets > 1e-4


def test_the_loss_without_distillation_is_that_of_the_next_tokens(recipe):
    objective, streams = objective_of(recipe, "objective.distill=0.0", "report.documents=1")
    (extract,) = objective.dev_extracts
    ids = torch.from_numpy(streams.text(extract.text)[: extract.end].astype("int64"))[None]
    with torch.no_grad():
        logits = objective.lm.project(objective.lm(ids, 0.25))[0, :-1]
    expected = torch.nn.functional.cross_entropy(logits, ids[0, 1:])
    loss, correct, targets = objective.measure(objective.lm, 0.25, 0, 1).tolist()
    assert targets == extract.end - 1
    assert loss / targets == pytest.approx(float(expected), rel=1e-4)
    assert correct == (logits.argmax(-1) == ids[0, 1:]).sum()


def test_batches_are_extracts_of_long_texts_of_equal_length(recipe):
    objective, streams = objective_of(recipe)
    lengths = [len(streams.text(number)) for number in range(len(streams))]
    assert min(lengths) < 40  # the shortest is left out
    for batch in objective.batches(0, 1):
        assert len({extract.end - extract.start for extract in batch}) == 1
        for text, start, end in batch:
            assert 0 <= start < end <= lengths[text]
            assert 40 <= end - start <= 64
    example = objective.dataset[Extract(4, 3, 9)]
    assert example.tolist() == streams.text(4)[3:9].tolist()


def test_corpora_without_long_texts_are_refused(recipe):
    with pytest.raises(InputError, match="no text has 60 tokens"):
        objective_of(recipe, "data.min_tokens=60", 'data.train=["' + str(short_corpus(recipe)) + '"]')


def short_corpus(recipe: Path) -> Path:
    path = recipe.with_name("short.jsonl")
    path.write_text(json.dumps({"text": CORPUS[0]}))
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.max_tokens=17", "must be above two segments of model.segment"),
        ("model.window=64", "model.window cannot be used with the objective 'causal'"),
        ("optimizer.gradient_checkpointing=true", "gradient_checkpointing cannot be used"),
        ("objective.sampled_softmax=10", "sampled_softmax cannot be used with the objective 'causal'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(recipe, change, message):
    with pytest.raises(ConfigError, match=message):
        read_recipe(recipe, [change, "data.min_tokens=2"])


def test_documents_longer_than_the_base_reads_are_refused(recipe):
    with pytest.raises(ConfigError, match=r"data\.max_tokens is 512, but the model takes at most 256"):
        build_model(read_recipe(recipe, ["data.max_tokens=512", "optimizer.batch_tokens=512"]))
