"""Training runs: learning, metrics, settings and several processes."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from transformers import set_seed

import textnuggets
from tests.tiny import CORPUS
from tests.train.setting import losses, make_setting, read_metrics, run_command
from textnuggets.errors import ConfigError
from textnuggets.train.build import build_model
from textnuggets.train.objectives.decoding import Decoding
from textnuggets.train.recipe_io import read_recipe
from textnuggets.train.run import train

# ---------------------------------------------------------------- learning


def test_the_loss_falls_and_the_best_model_loads(unbroken):
    found = losses(unbroken)
    assert list(found) == list(range(1, 13))
    assert found[12] < found[1]
    model = textnuggets.load(unbroken / "best")
    assert model.encode("The cat sat on the mat.").vectors.shape[1] == 32


def test_metrics_are_written_by_step(unbroken):
    records = read_metrics(unbroken)
    first = records[0]
    assert {"step", "loss", "token_accuracy", "tokens_per_second", "learning_rate"} <= first.keys()
    evaluations = [record for record in records if "eval_loss" in record]
    assert [record["step"] for record in evaluations] == [6, 12]
    assert {"eval_loss_r0.25", "eval_token_accuracy_r0.25"} <= evaluations[0].keys()
    assert list((unbroken / "tensorboard").glob("events*"))


@pytest.mark.parametrize(
    "selector", ["learned", "spread", "mean", "all_tokens", "chunking", "sentence_boundary"]
)
@pytest.mark.parametrize("objective", ["autoencode", "denoise", "translate"])
def test_every_objective_works_with_every_selector(recipe, tmp_path, objective, selector):
    changes = [f"objective.name={objective}", f"model.selector={selector}", "optimizer.steps=6"]
    if objective == "denoise":
        changes += ["objective.delete=0.6"]
    if objective == "translate":
        pairs = f"['{recipe.parent}/pairs.jsonl']"
        changes += [f"data.train={pairs}", f"data.dev={pairs}", "data.languages=['en', 'fr']"]
    best = train(read_recipe(recipe, changes), tmp_path / "run")
    found = losses(tmp_path / "run")
    assert found[6] < found[1]
    assert textnuggets.load(best).config.selector == selector


def test_the_dev_loss_is_exact_with_a_sampled_softmax(recipe, tmp_path):
    changes = ["optimizer.steps=6", "optimizer.lr=1e-9", "objective.sampled_softmax=100"]
    train(read_recipe(recipe, changes), tmp_path / "sampled")
    train(read_recipe(recipe, [*changes, "objective.sampled_softmax=0"]), tmp_path / "whole")
    sampled, whole = (
        [r for r in read_metrics(tmp_path / n) if "eval_loss" in r] for n in ("sampled", "whole")
    )
    assert sampled[0]["eval_loss"] == pytest.approx(whole[0]["eval_loss"], abs=1e-4)
    # The training loss over a sample estimates the exact one.
    assert losses(tmp_path / "sampled")[1] == pytest.approx(losses(tmp_path / "whole")[1], rel=0.15)
    assert losses(tmp_path / "sampled")[1] != losses(tmp_path / "whole")[1]


def test_the_configured_share_of_ordinary_tokens_is_hidden(recipe):
    objective = Decoding.__new__(Decoding)
    objective.recipe = read_recipe(recipe, ["objective.hide=0.5"])
    objective.model = model = build_model(objective.recipe)
    labels = model.tokenizer([" ".join(CORPUS)] * 20, return_tensors="pt").input_ids
    shown, hidden = model.adapter.shift(labels), objective.hide(labels)
    special = torch.isin(shown, torch.tensor(model.tokenizer.all_special_ids))
    assert hidden[special].equal(shown[special])
    made_unknown = hidden[~special] == model.tokenizer.unk_token_id
    assert 0.4 < made_unknown.float().mean() < 0.6
    assert hidden[~special][~made_unknown].equal(shown[~special][~made_unknown])


def test_training_learns_with_hidden_decoder_input(recipe, tmp_path):
    train(read_recipe(recipe, ["optimizer.steps=6", "objective.hide=0.5"]), tmp_path / "hidden")
    assert losses(tmp_path / "hidden")[6] < losses(tmp_path / "hidden")[1]


def ratios_of(recipe, *changes):
    objective = Decoding.__new__(Decoding)
    objective.recipe = read_recipe(recipe, changes)
    return [objective.ratio_at(step) for step in range(200)]


def test_a_ratio_is_drawn_for_every_step_and_the_same_after_resuming(recipe):
    found = ratios_of(recipe, "objective.ratios=[0.1, 0.25, 0.5]")
    assert set(found) == {0.1, 0.25, 0.5}
    assert found == ratios_of(recipe, "objective.ratios=[0.1, 0.25, 0.5]")
    assert set(ratios_of(recipe)) == {0.25}


def test_an_annealed_ratio_falls_from_all_tokens_to_the_drawn_one(recipe):
    found = ratios_of(recipe, "objective.anneal_steps=100")
    assert found[0] == 1.0
    assert found[50] == pytest.approx(math.sqrt(0.25))
    assert all(before >= after for before, after in pairwise(found))
    assert found[100:] == [0.25] * 100


def test_parts_named_in_the_recipe_are_frozen_and_others_learn_faster(recipe, tmp_path):
    part = "backbone.model.decoder.layers.0"
    set_seed(0)  # as the run does, for the random initialization of the scorer
    before = build_model(read_recipe(recipe)).state_dict()
    changes = [f"model.freeze_parts=['{part}']", "optimizer.lr_scale={scorer = 0.0}", "optimizer.steps=6"]
    after = textnuggets.load(train(read_recipe(recipe, changes), tmp_path / "run")).state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert not any(name.startswith((part, "scorer", "backbone.model.encoder.layers.0")) for name in changed)
    assert any(name.startswith("backbone.model.decoder.layers.1") for name in changed)


def test_the_window_of_a_trained_model_is_the_length_of_its_training_documents(recipe, tmp_path):
    short = ["data.max_tokens=32", "data.min_tokens=4", "optimizer.steps=2"]
    first = train(read_recipe(recipe, short), tmp_path / "first")
    assert textnuggets.load(first).window == 32
    # The window of a start model grows with longer documents, and never shrinks.
    for longest, window in ((24, 32), (48, 48)):
        changes = [*short[1:], f"model.start={first}", f"data.max_tokens={longest}"]
        continued = build_model(read_recipe(recipe, [*changes, "model.query_ratio=0.5"]))
        assert (continued.window, continued.config.query_ratio) == (window, 0.5)
    continued.save_pretrained(tmp_path / "second")
    kept = build_model(read_recipe(recipe, [*short[1:], f"model.start={tmp_path / 'second'}"]))
    assert kept.config.query_ratio == 0.5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "model.freeze_parts=['backbone.model.decoder.layer.0']",
            "did you mean 'backbone.model.decoder.layers.0'",
        ),
        ("optimizer.lr_scale={scoring = 2.0}", "no part 'scoring': did you mean 'scorer"),
        ("model.scorer_layer=7", "scorer_layer is 7"),
        ("model.selector=best", "selector must be one of"),
        ("data.max_tokens=128", "data.max_tokens is 128, but the model takes at most 64"),
    ],
)
def test_settings_that_the_model_cannot_have_are_errors_before_data_is_read(recipe, tmp_path, change, words):
    with pytest.raises(ConfigError) as raised:
        train(read_recipe(recipe, [change]), tmp_path / "run")
    assert words in str(raised.value)


def test_settings_of_the_trainer_are_checked(recipe, tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'weight_decay'"):
        train(read_recipe(recipe, ["trainer.weigth_decay=1"]), tmp_path / "a")
    with pytest.raises(ConfigError, match="determined by the other tables of the recipe"):
        train(read_recipe(recipe, ["trainer.max_steps=1"]), tmp_path / "b")


def test_mixed_precision_learns_the_same_and_keeps_whole_weights(recipe, unbroken, tmp_path):
    best = train(read_recipe(recipe, ["optimizer.precision=bfloat16"]), tmp_path / "run")
    whole, mixed = losses(unbroken), losses(tmp_path / "run")
    assert whole != mixed
    assert list(mixed.values()) == pytest.approx(list(whole.values()), rel=0.02)
    loaded = textnuggets.NuggetModel.from_pretrained(best)
    assert {value.dtype for value in loaded.state_dict().values()} == {torch.float32}
    assert loaded.backbone.config._attn_implementation == "sdpa"  # whatever attention it was trained with


def test_training_stops_when_the_dev_loss_no_longer_falls(recipe, tmp_path):
    changes = ["optimizer.lr=0.5", "report.evaluate_every=1", "report.patience=2", "optimizer.steps=50"]
    train(read_recipe(recipe, [*changes, "report.log_every=1"]), tmp_path / "run")
    evaluations = [record for record in read_metrics(tmp_path / "run") if "eval_loss" in record]
    assert len(evaluations) < 50
    best = min(record["eval_loss"] for record in evaluations)
    assert [record["eval_loss"] for record in evaluations].index(best) == len(evaluations) - 3


def test_training_starts_from_a_trained_model(unbroken, recipe, tmp_path):
    changes = [f"model.start='{unbroken}/best'", "optimizer.steps=3"]
    text = recipe.read_text().replace("backbone =", "# backbone =")
    (tmp_path / "recipe.toml").write_text(text)
    train(read_recipe(tmp_path / "recipe.toml", changes), tmp_path / "run")
    assert losses(tmp_path / "run")[1] < losses(unbroken)[3]


def test_parts_of_a_start_model_can_be_dropped_but_not_added(unbroken, recipe, tmp_path):
    before = textnuggets.load(unbroken / "best")
    dropped = ["model.selector=mean", "model.residual=off", "model.feedback=false", "optimizer.steps=1"]
    model = build_model(read_recipe(recipe, [*dropped, f"model.start='{unbroken}/best'"]))
    assert model.scorer is None
    assert model.feedback is None
    assert before.scorer is not None
    after = model.state_dict()
    left = {name.split(".")[0] for name in before.state_dict().keys() - after.keys()}
    assert left == {"scorer", "feedback"}
    for name, weights in after.items():
        torch.testing.assert_close(weights, before.state_dict()[name], rtol=0, atol=0)
    assert model.eval().encode(CORPUS[0]).vectors.shape[0] == 1
    pooled = train(read_recipe(recipe, [*dropped, f"model.start='{unbroken}/best'"]), tmp_path / "pooled")
    with pytest.raises(ConfigError, match=r"model\.selector is 'learned', but .* has 'mean'"):
        build_model(read_recipe(recipe, [f"model.start={pooled}", "model.selector=learned"]))
    with pytest.raises(ConfigError, match=r"model\.residual is 'add', but .* has 'off'"):
        build_model(read_recipe(recipe, [f"model.start={pooled}"]))
    unset = build_model(read_recipe(recipe, [*dropped[1:], f"model.start={pooled}"]))
    assert unset.config.selector == "mean"


def test_a_learned_selector_can_replace_another_and_one_that_is_not_set_is_kept(unbroken, recipe, tmp_path):
    start = f"model.start={unbroken}/best"
    spread = build_model(read_recipe(recipe, [start, "model.selector=spread"]))
    before = textnuggets.load(unbroken / "best")
    assert spread.selector is not before.selector
    for name, weights in before.state_dict().items():
        torch.testing.assert_close(weights, spread.state_dict()[name], rtol=0, atol=0)
    spread.save_pretrained(tmp_path / "spread")
    start = f"model.start={tmp_path / 'spread'}"
    assert build_model(read_recipe(recipe, [start])).config.selector == "spread"
    changed = read_recipe(recipe, [start, "model.selector=learned", "optimizer.steps=3"])
    assert build_model(changed).config.selector == "learned"
    train(changed, tmp_path / "run")
    resumed = train(read_recipe(recipe, [start, "optimizer.steps=6"]), tmp_path / "run", resume=True)
    assert textnuggets.load(resumed).config.selector == "learned"
    (tmp_path / "run" / "recipe.toml").write_text(read_recipe(recipe, [start]).to_toml())
    with pytest.raises(ConfigError, match=r"started with model\.selector = None"):
        train(changed, tmp_path / "run", resume=True)


def test_a_shipped_model_can_be_the_start_by_its_name(unbroken, recipe, tmp_path, monkeypatch):
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / "search").symlink_to(unbroken / "best")
    monkeypatch.setattr("textnuggets.shipped.OWN", tmp_path / "shipped")
    model = build_model(read_recipe(recipe, ["model.start=search"]))
    torch.testing.assert_close(
        model.value.weight, textnuggets.load(unbroken / "best").value.weight, rtol=0, atol=0
    )


# ---------------------------------------------------------------- several processes


def test_two_processes_give_the_losses_of_one_with_twice_the_batch(tmp_path):
    recipe = make_setting(tmp_path, dropout=0.0)
    one = run_command(recipe, "--out", tmp_path / "one", "--set", "optimizer.batch_tokens=512")
    two = run_command(
        recipe,
        "--out",
        tmp_path / "two",
        launcher=("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
    )
    assert one.returncode == 0, one.stderr
    assert two.returncode == 0, two.stderr
    first, second = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert first.keys() == second.keys() == set(range(1, 13))
    for step, loss in first.items():
        assert loss == pytest.approx(second[step], abs=2e-5), step
    dev = [[r["eval_loss"] for r in read_metrics(tmp_path / n) if "eval_loss" in r] for n in ("one", "two")]
    assert dev[0] == pytest.approx(dev[1], abs=2e-5)


def test_accumulated_batches_give_the_losses_of_one_large_one(tmp_path):
    recipe = make_setting(tmp_path, dropout=0.0)
    train(read_recipe(recipe, ["optimizer.batch_tokens=512"]), tmp_path / "one")
    train(read_recipe(recipe, ["optimizer.accumulate=2"]), tmp_path / "two")
    assert losses(tmp_path / "one") == pytest.approx(losses(tmp_path / "two"), abs=2e-5)


# ---------------------------------------------------------------- command line


def test_bad_recipes_are_one_line_and_code_2(recipe, tmp_path):
    wrong = run_command(recipe, "--out", tmp_path / "run", "--set", "optimizer.step=3")
    assert wrong.returncode == 2
    (line,) = wrong.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert "did you mean 'optimizer.steps'" in line
    assert not (tmp_path / "run").exists()
