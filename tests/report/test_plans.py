"""The plans and recipes that come with the package: fair baselines, and the protocol of the paper."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from textnuggets.report.reproduce import find_plan, read_plan
from textnuggets.train.recipe_io import SHIPPED, find_recipe, read_recipe

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PLANS = ("paper", "small", "lm")


def runs(plan):
    """Return the recipe of every training run of a plan, by name."""
    return {
        step.name: read_recipe(find_recipe(step.arguments[1]), step.arguments[3:-2:2], check_corpora=False)
        for step in read_plan(find_plan(plan), Path("out"))
        if step.is_training
    }


def commands(plan):
    """Return the arguments of every evaluation of a plan, by name."""
    return {
        step.name: step.arguments for step in read_plan(find_plan(plan), Path("out")) if not step.is_training
    }


def test_tsdae_has_no_feedback_no_scores_and_nothing_frozen():
    recipes = {path.stem: read_recipe(path, check_corpora=False) for path in SHIPPED.glob("*.toml")}
    every = [
        *recipes.items(),
        *((f"{plan}: {name}", found) for plan in PLANS for name, found in runs(plan).items()),
    ]
    pooled = {
        name: found.model
        for name, found in every
        if found.model.selector == "mean" and found.objective.name != "language_model"
    }
    assert {
        "tsdae",
        "paper-tsdae",
        "paper: tsdae-translate",
        "small: ablation-tsdae-translate",
        "lm: tsdae-encoder",
    } <= set(pooled)
    for name, model in pooled.items():
        assert (model.residual, model.feedback, model.freeze) == ("off", False, False), name
        assert model.window is not None, f"{name}: one vector per window, not per document"
        assert model.window > 240


def test_the_tsdae_encoder_sees_as_many_tokens_as_the_nugget_encoder():
    steps = 0
    for part in ("training", "cooldown"):
        lines = (RESULTS / "default" / part / "metrics.jsonl").read_text().splitlines()
        steps += max(json.loads(line)["step"] for line in lines)
    nuggets = read_recipe(RESULTS / "default" / "training" / "recipe.toml", check_corpora=False)
    encoder = runs("lm")["tsdae-encoder"]
    assert (
        encoder.model.backbone == read_recipe(find_recipe("reconstruct"), check_corpora=False).model.backbone
    )
    budget = encoder.optimizer.steps * encoder.optimizer.batch_tokens
    assert budget == pytest.approx(steps * nuggets.optimizer.batch_tokens, rel=0.02)
    data = read_recipe(find_recipe("reconstruct"), check_corpora=False).data
    assert encoder.data.model_copy(update={"min_tokens": data.min_tokens}) == data


def test_the_language_models_of_a_plan_have_equal_budgets():
    for plan in ("lm", "paper"):
        models = [found for found in runs(plan).values() if found.objective.name == "language_model"]
        assert len(models) >= 5
        assert len({found.optimizer.model_dump_json() for found in models}) == 1


def test_ablations_differ_from_the_first_row_alone():
    for plan, base in (("paper", "translate-0.1"), ("small", "ablation-layer-3")):
        found = runs(plan)
        rows = {
            name: row for name, row in found.items() if name.startswith("ablation-") and "tsdae" not in name
        }
        for name, row in rows.items():
            assert row.objective.anneal_steps == 0
            assert (row.optimizer, row.data, row.objective) == (
                found[base].optimizer,
                found[base].data,
                found[base].objective,
            )
            changed = {key for key, value in row.model if value != getattr(found[base].model, key)}
            # No layer is left above the last one, so its name says that there is no feedback.
            assert len(changed) == (
                2 if name.endswith("-no-feedback") and "layer" in name else name != base
            ), name
        kinds = {
            "layer-0",
            "layer-6",
            "no-feedback",
            "no-residual",
            "straight-through",
            "chunking",
            "sentence-ends",
        }
        assert {f"ablation-{kind}" for kind in kinds} - set(rows) <= {"ablation-layer-6"}


def test_the_plan_of_the_paper_has_all_its_tables():
    found, evaluated = runs("paper"), commands("paper")
    for name, recipe in found.items():
        if recipe.objective.name != "language_model":
            assert recipe.model.window == 1024, f"{name} would split documents of the similarity tasks"
            assert recipe.data.max_tokens == 128
    for objective in ("autoencode", "translate"):
        ratios = [name.split("-")[1] for name in found if name.startswith(objective)]
        assert ratios == ["0", "0.05", "0.1", "0.15", "0.25"]
        assert {f"{objective}-{ratio}/reconstruction" for ratio in ratios} <= set(evaluated)
    assert found["autoencode-0"].model.ratio * 1024 < 1  # one vector
    for task in ("paraphrase", "reranking"):
        systems = " ".join(evaluated[task])
        for name in ("bm25", "autoencode-0.25", "translate-0.05", "tsdae/", "tsdae-translate", ":all"):
            assert name in systems
        assert len(evaluated[f"ablation/{task}"]) > 12
    histories = {name: arguments[5] for name, arguments in evaluated.items() if arguments[0] == "lm"}
    assert histories["lm-nuggets-0.05/test"] == histories["lm-tsdae/test"] == "1,2,4,8"
    assert histories["lm-no-history/test"] == "0"
    assert histories["lm-compressive/test"] == "4"
