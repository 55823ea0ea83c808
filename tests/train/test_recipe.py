"""Recipes: checked whole, before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.train.setting import make_setting
from textnuggets.errors import ConfigError, InputError
from textnuggets.train.reading import SHIPPED, find_recipe, read_recipe
from textnuggets.train.recipe import describe_keys


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return make_setting(tmp_path_factory.mktemp("recipe"))


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_that_ships_is_valid(path, recipe):
    folder = recipe.parent  # where the texts of those that are not on the Hub stand in for theirs
    own = [f"data.train=['{folder}/train.jsonl']", f"data.dev=['{folder}/dev.txt']"]
    read_recipe(path, [] if path.stem.startswith("paper-") else own)


def test_the_papers_recipes_say_what_the_paper_says():
    for name in ("paper-autoencode", "paper-translate"):
        found = read_recipe(find_recipe(name))
        assert found.model.backbone == "facebook/mbart-large-50-many-to-many-mmt"
        assert (found.model.ratio, found.model.scorer_layer, found.data.max_tokens) == (0.1, 3, 128)
        assert (found.optimizer.lr, found.optimizer.batch_tokens) == (5e-5, 16 * 128)
    assert read_recipe(find_recipe("paper-tsdae")).objective.delete == 0.6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("optimizer.step=3", "unknown key 'optimizer.step': did you mean 'optimizer.steps'"),
        ("lr=3", "unknown key 'lr': did you mean 'optimizer.lr'"),
        ("model.ratios=[0.1]", "did you mean 'model.ratio'"),
        ("optimizer.steps=many", "optimizer.steps must be a whole number, got 'many'"),
        ("optimizer.steps=1.5", "must be a whole number, got 1.5"),
        ("model.feedback=1", "model.feedback must be true or false, got 1"),
        (
            "objective.name=copy",
            "must be one of autoencode, denoise, translate, contrastive, language_model, got 'copy'",
        ),
        ("objective=autoencode", "objective is a table of settings"),
        ("objective.ratios=0.1", "objective.ratios must be a list"),
        ("objective.ratios=[0.1, 1.5]", "ratio must lie in (0, 1], got 1.5"),
        ("model.ratio=0", "ratio must lie in (0, 1], got 0"),
        ("optimizer.steps=0", "optimizer.steps must be at least 1, got 0"),
        ("optimizer.lr=-1", "optimizer.lr must be above 0"),
        ("optimizer.betas=[0.9]", "two numbers"),
        ("optimizer.batch_tokens=32", "must hold at least one document"),
        ("objective.delete=0.6", "goes with the objective 'denoise'"),
        ("objective.name=denoise", "needs objective.delete"),
        ("objective.name=translate", "needs 2 data.languages"),
        ("objective.hide=1.0", "a share of tokens"),
        ("report.log_every=2", "must be a multiple of report.log_every"),
        ("optimizer.warmup_steps=99", "is above optimizer.steps"),
        ("data.dev=[]", "data.dev names no corpus"),
        ("seed", "write it as key=value"),
    ],
)
def test_a_wrong_setting_is_named(recipe, change, words):
    with pytest.raises(ConfigError) as raised:
        read_recipe(recipe, [change])
    assert words in str(raised.value)


def test_a_corpus_that_is_not_there_is_found_out_before_training(recipe):
    with pytest.raises(InputError, match=r"nowhere\.txt: no such file"):
        read_recipe(recipe, ["data.dev=['nowhere.txt']"])


def test_what_is_no_toml_is_named_with_its_line(tmp_path):
    (tmp_path / "bad.toml").write_text("[model]\nratio = = 1\n")
    with pytest.raises(ConfigError, match=r"bad\.toml: not TOML: .*line 2"):
        read_recipe(tmp_path / "bad.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_recipe(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"one of .*paper-autoencode"):
        find_recipe("paper-autoencod")


def test_changes_are_toml_values_or_bare_strings(recipe):
    found = read_recipe(
        recipe,
        [
            "optimizer.lr=2e-4",
            "objective.ratios=[0.1, 0.5]",
            "model.selector=chunking",
            "model.feedback=false",
        ],
    )
    assert (found.optimizer.lr, found.objective.ratios) == (2e-4, [0.1, 0.5])
    assert (found.model.selector, found.model.feedback) == ("chunking", False)


def test_a_start_takes_the_place_of_the_files_backbone_and_the_other_way_round(recipe, tmp_path):
    started = read_recipe(recipe, ["model.start=somewhere"])
    assert (started.model.start, started.model.backbone) == ("somewhere", None)
    (tmp_path / "started.toml").write_text(started.to_toml())
    assert read_recipe(tmp_path / "started.toml", ["model.backbone=bart"]).model.start is None
    both = recipe.read_text().replace("[model]", '[model]\nstart = "somewhere"')
    (tmp_path / "both.toml").write_text(both)
    with pytest.raises(ConfigError, match=r"one of model\.backbone and model\.start"):
        read_recipe(tmp_path / "both.toml")


def test_a_recipe_written_out_reads_back_the_same(recipe, tmp_path):
    found = read_recipe(recipe, ["optimizer.lr_scale={scorer = 3.0}", "model.dropout=0.0"])
    (tmp_path / "again.toml").write_text(found.to_toml())
    assert read_recipe(tmp_path / "again.toml") == found
    emptied = read_recipe(recipe, ["optimizer.lr_scale={scorer = 3.0}", "optimizer.lr_scale={}"])
    assert emptied.optimizer.lr_scale == {}


def test_every_key_is_documented_in_the_docs():
    documented = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    for key, default, meaning in describe_keys():
        assert f"| `{key}` | {f'`{default}`' if default else ''} | {meaning} |" in documented
