"""Plans: read, run from one command, and resumed."""

from __future__ import annotations

import pytest

from tests.tiny import CORPUS
from tests.train.setting import make_setting
from textnuggets.errors import ConfigError
from textnuggets.report import reproduce
from textnuggets.report.reproduce import carry_out, find_plan, read_plan

PLAN = """
[[train]]
name = "tiny"
recipe = "{recipe}"
set = ["optimizer.steps=3", "report.evaluate_every=3"]

[[run]]
name = "tiny/preferences"
command = ["evaluate", "preferences", "{{tiny}}", "{texts}", "--max-tokens", "48", "--out", "{{results}}/tiny"]
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    recipe = make_setting(folder)
    (folder / "texts.txt").write_text("\n".join(CORPUS) + "\n")
    made = folder / "plan.toml"
    made.write_text(PLAN.format(recipe=recipe, texts=folder / "texts.txt"))
    return made


def test_a_plan_is_trained_measured_and_reported_and_not_done_twice(plan, tmp_path, run, monkeypatch):
    done = run("reproduce", plan, "--out", tmp_path / "out", "--set", "optimizer.lr=1e-4")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "report.html").read_text()
    assert "section 5.2" in page
    assert (tmp_path / "out" / "runs" / "tiny" / "best" / "config.json").is_file()
    monkeypatch.setattr(reproduce.subprocess, "run", lambda *_, **__: pytest.fail("done again"))
    carry_out(read_plan(plan, tmp_path / "out", ["optimizer.lr=1e-4"]), tmp_path / "out")
    changed = run("reproduce", plan, "--out", tmp_path / "out", "--set", "optimizer.lr=1e-3")
    assert changed.returncode == 2
    assert "was run with other arguments" in changed.stderr


@pytest.mark.parametrize("name", ["paper", "small", "lm"])
def test_the_plans_that_come_with_the_package_can_be_read(name, tmp_path, run):
    said = run("reproduce", name, "--out", tmp_path / "out", "--dry-run")
    assert said.returncode == 0, said.stderr
    steps = read_plan(find_plan(name), tmp_path / "out")
    assert said.stdout.count("\n") == len(steps)
    assert not (tmp_path / "out").exists()
    from textnuggets.train.recipe_io import find_recipe, read_recipe

    for step in steps:
        if step.is_training:
            read_recipe(find_recipe(step.arguments[1]), step.arguments[3:-2:2], check_corpora=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no steps"),
        ("[[trian]]", "unknown table 'trian'"),
        ("[[train]]\nname = 'x'", "recipe of a step must be a str"),
        ("[[train]]\nname = 'x'\nrecipe = 'y'\nstep = 3", "unknown key 'step'"),
        ("[[run]]\nname = 'x'\ncommand = ['{y}']", "is not the name of an earlier training run"),
        ("[[run]]\nname = 'x'\ncommand = ['y']\n" * 2, "two steps have the name 'x'"),
        ("[", "invalid TOML"),
        ("a = " + "[" * 9999, "invalid TOML"),
        ("train = 1", "'train' must be tables: write .*train.* before each step"),
        ("run = ['x']", "'run' must be tables"),
        ("[[train]]\nname = 1\nrecipe = 'y'", "name of a step must be a str, got 1"),
        ("[[train]]\nname = 'x'\nrecipe = 'y'\nset = [1]", "set of a step must hold strings, got 1"),
        ("[[run]]\nname = 'x'\ncommand = [[1]]", "command of a step must hold strings"),
        ("[[run]]\nname = 'x'\ncommand = [\"\\u0000\"]", "command of a step must hold strings"),
        ("[[run]]\nname = 'x'", "the step 'x' has no command"),
        ("[[run]]\nname = 'a/../../x'\ncommand = ['y']", "the name 'a/../../x' of a step is not made of"),
        ("[[train]]\nname = 'results'\nrecipe = 'y'", "a training run cannot have the name 'results'"),
    ],
)
def test_an_invalid_plan_is_named(tmp_path, text, message):
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_plan(tmp_path / "plan.toml", tmp_path)
    with pytest.raises(ConfigError, match="no plan 'none'"):
        find_plan("none")
