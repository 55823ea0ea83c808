"""Recipes: types, bounds and rules, checked before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from textnuggets.errors import ConfigError, InputError
from textnuggets.train.recipe_io import SHIPPED, describe_keys, find_recipe, read_recipe

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_that_ships_is_valid(path, recipe):
    # Small files replace corpora that are not on the Hub.
    folder = recipe.parent
    corpora = [f"data.train=['{folder}/train.jsonl']", f"data.dev=['{folder}/dev.txt']"]
    on_hub = "hf:" in path.read_text(encoding="utf-8")
    read_recipe(path, [] if on_hub else corpora)


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("recipe.toml")), ids=lambda path: str(path.parent.name))
def test_every_recipe_of_the_results_is_valid(path):
    read_recipe(path, check_corpora=False)


def test_the_recipes_of_the_paper_have_its_settings():
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
            "must be one of autoencode, denoise, translate, contrastive, language_model or causal, got 'copy'",
        ),
        ("objective=autoencode", "objective must be a table of settings, got 'autoencode'"),
        ("objective.ratios=0.1", "objective.ratios must be a list"),
        ("optimiser.lr=3", "--set optimiser.lr=3: unknown key 'optimiser': did you mean 'optimizer'?"),
        ("optimizer.clip=true", "optimizer.clip must be a number, got True"),
        ("optimizer.clip=inf", "optimizer.clip must be a finite number, got inf"),
        ("optimizer.lr=nan", "optimizer.lr must be a finite number, got nan"),
        ("optimizer.lr=1979-05-27", "optimizer.lr must be a number"),
        ("model.start=''", "model.start must not be empty"),
        ("data.cache=''", "data.cache must not be empty"),
        (f"optimizer.lr={'[' * 9999}", "optimizer.lr must be a number"),
        ("optimizer.lr='1e-3'", "optimizer.lr must be a number, got '1e-3'"),
        ("optimizer.lr_scale={scorer = -1}", "optimizer.lr_scale.scorer must be at least 0, got -1"),
        ("seed=4294967296", "seed must be below 4294967296"),
        ("objective.ratios=[0.1, 1.5]", "objective.ratios[1] must be at most 1, got 1.5"),
        ("model.ratio=0", "--set model.ratio=0: model.ratio must be above 0, got 0"),
        ("optimizer.steps=0", "optimizer.steps must be at least 1, got 0"),
        ("optimizer.lr=-1", "optimizer.lr must be above 0"),
        ("optimizer.betas=[0.9]", "optimizer.betas must have 2 values, got [0.9]"),
        ("optimizer.batch_tokens=32", "must be at least 64, to hold a document of data.max_tokens (64)"),
        ("objective.delete=0.6", "cannot be used with the objective 'autoencode'"),
        ("objective.name=denoise", "needs objective.delete"),
        ("objective.name=translate", "needs 2 data.languages"),
        ("objective.hide=1.0", "objective.hide must be below 1, got 1.0"),
        ("report.log_every=2", "must be a multiple of report.log_every"),
        ("optimizer.warmup_steps=99", "optimizer.warmup_steps (99) is above optimizer.steps (12)"),
        ("data.dev=[]", "data.dev is empty"),
        ("seed", "write it as key=value"),
    ],
)
def test_an_invalid_setting_is_named(recipe, change, words):
    with pytest.raises(ConfigError) as raised:
        read_recipe(recipe, [change])
    assert words in str(raised.value)


def test_a_missing_corpus_is_an_error_before_training(recipe):
    with pytest.raises(InputError, match=r"nowhere\.txt: no such file"):
        read_recipe(recipe, ["data.dev=['nowhere.txt']"])
    with pytest.raises(InputError, match="the name of a corpus is empty"):
        read_recipe(recipe, ["data.dev=['']"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("trainer.fsdp='full_shard'", "trainer.fsdp needs several processes: use torchrun"),
        ("trainer.accelerator_config=1", "trainer.accelerator_config: "),  # would be opened as a descriptor
        ("trainer.dataloader_num_workers=many", "trainer.dataloader_num_workers: "),
        ("trainer.neftune_noise_alpha=nan", "trainer.neftune_noise_alpha must be a finite number, got nan"),
        ("trainer.log_level=loud", "Hugging Face's TrainingArguments: "),
        ("trainer.dataloader_num_worker=1", "did you mean 'dataloader_num_workers'"),
    ],
)
def test_an_invalid_setting_of_the_trainer_is_one_line(recipe, run, tmp_path, change, words):
    refused = run("train", recipe, "-o", tmp_path / "run", "--set", change)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("change", ["trainer.dataloader_num_workers=-1", "trainer.lr_scheduler_kwargs={a=1}"])
def test_a_setting_that_only_the_trainer_refuses_is_one_line(recipe, run, tmp_path, change):
    refused = run("train", recipe, "-o", tmp_path / "run", "--set", change)
    assert refused.returncode == 2
    *_, line = refused.stderr.splitlines()
    assert line.startswith(f"error: Hugging Face's Trainer does not start with {change.partition('=')[0]}: ")
    assert "Traceback" not in refused.stderr


def test_invalid_toml_is_named_with_its_line(tmp_path):
    (tmp_path / "bad.toml").write_text("[model]\nratio = = 1\n")
    with pytest.raises(ConfigError, match=r"bad\.toml: invalid TOML: .*line 2"):
        read_recipe(tmp_path / "bad.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_recipe(tmp_path / "none.toml")
    for name in ("paper-autoencod", "x" * 5000):
        with pytest.raises(ConfigError, match=r"one of .*paper-autoencode"):
            find_recipe(name)


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


def test_setting_a_start_replaces_the_backbone_of_the_file_and_vice_versa(recipe, tmp_path):
    started = read_recipe(recipe, ["model.start=somewhere"])
    assert (started.model.start, started.model.backbone) == ("somewhere", None)
    (tmp_path / "started.toml").write_text(started.to_toml())
    assert read_recipe(tmp_path / "started.toml", ["model.backbone=bart"]).model.start is None
    both = recipe.read_text().replace("[model]", '[model]\nstart = "somewhere"')
    (tmp_path / "both.toml").write_text(both)
    with pytest.raises(ConfigError, match=r"both\.toml: set exactly one of model\.backbone and model\.start"):
        read_recipe(tmp_path / "both.toml")


def test_a_recipe_written_as_toml_reads_back_the_same(recipe, tmp_path):
    found = read_recipe(recipe, ["optimizer.lr_scale={scorer = 3.0}", "model.dropout=0.0"])
    (tmp_path / "again.toml").write_text(found.to_toml())
    assert read_recipe(tmp_path / "again.toml") == found
    emptied = read_recipe(recipe, ["optimizer.lr_scale={scorer = 3.0}", "optimizer.lr_scale={}"])
    assert emptied.optimizer.lr_scale == {}


def test_a_selector_that_is_not_set_is_not_written_out_with_a_start(recipe, tmp_path):
    unset, explicit = (
        read_recipe(recipe, ["model.start=somewhere", *changes])
        for changes in ([], ["model.selector=learned"])
    )
    assert unset == explicit
    for name, written in (("unset", unset), ("explicit", explicit)):
        (tmp_path / name).write_text(written.to_toml())
        assert read_recipe(tmp_path / name).model.keeps_selector == (name == "unset")


def test_every_key_is_documented_in_the_docs():
    documented = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    for key, default, meaning in describe_keys():
        assert f"| `{key}` | {f'`{default}`' if default else ''} | {meaning} |" in documented
