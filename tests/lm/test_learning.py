"""Training of language models, with a frozen or a trained encoder."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from tests.lm.setting import SIZE
from tests.tiny import CORPUS, tiny_model
from tests.train.setting import losses, make_setting
from textnuggets import NuggetLM
from textnuggets.errors import ConfigError, InputError
from textnuggets.lm.corpus import Place
from textnuggets.train.build import build_model
from textnuggets.train.objectives.language_model import SegmentBatches, Segments, Target
from textnuggets.train.recipe_io import read_recipe
from textnuggets.train.run import train


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm")
    made = make_setting(folder)
    tiny_model().save_pretrained(folder / "start")
    texts = [{"text": " ".join(CORPUS[(i + j) % 5] for j in range(6))} for i in range(10)]
    (folder / "train.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    made.write_text(made.read_text().replace(f'backbone = "{folder}/backbone"', f'start = "{folder}/start"'))
    return made


LM = ["objective.name=language_model", f"model.segment={SIZE}", "model.history=3"]


@pytest.mark.parametrize(
    "changes",
    [
        ["objective.histories=[1, 3]"],
        ["objective.train_encoder=true"],
        ["model.memory=tokens", "model.history=2", "objective.histories=[1, 2]"],
        ["model.memory=compressive", "model.pooled=4"],
        ["objective.histories=[0]"],
        ["objective.sampled_softmax=100"],
    ],
)
def test_every_kind_of_language_model_learns(recipe, tmp_path, changes):
    best = train(read_recipe(recipe, [*LM, "optimizer.lr=3e-3", *changes]), tmp_path / "run")
    found = losses(tmp_path / "run")
    assert np.mean([found[i] for i in (10, 11, 12)]) < np.mean([found[i] for i in (1, 2, 3)])
    assert NuggetLM.from_pretrained(best).config.segment == SIZE


def test_a_frozen_encoder_does_not_change_and_its_nuggets_are_computed_once(recipe, tmp_path, monkeypatch):
    changes = [*LM, "optimizer.steps=3", "report.evaluate_every=3"]
    best = train(read_recipe(recipe, changes), tmp_path / "run")
    after = NuggetLM.from_pretrained(best).nugget.state_dict()
    moved = {name for name, value in tiny_model().state_dict().items() if not torch.equal(value, after[name])}
    assert moved
    assert all("decoder" in name for name in moved)
    monkeypatch.setattr(NuggetLM, "remember", lambda *_: pytest.fail("encoded again"))
    train(read_recipe(recipe, changes), tmp_path / "again")
    assert losses(tmp_path / "again") == losses(tmp_path / "run")


def test_cached_nuggets_equal_computed_ones(recipe, tmp_path):
    """Up to the float16 precision of the cache."""
    changes = [*LM, "optimizer.lr=1e-9", "optimizer.steps=6", "model.dropout=0.0"]
    train(read_recipe(recipe, changes), tmp_path / "cached")
    train(read_recipe(recipe, [*changes, "objective.train_encoder=true"]), tmp_path / "computed")
    cached, computed = losses(tmp_path / "cached"), losses(tmp_path / "computed")
    assert list(cached.values()) == pytest.approx(list(computed.values()), rel=2e-3)


def test_settings_that_differ_from_the_start_and_texts_without_history_are_refused(recipe, tmp_path):
    with pytest.raises(ConfigError, match=r"model\.selector is 'mean', but .* has 'learned'"):
        train(read_recipe(recipe, [*LM, "model.selector=mean"]), tmp_path / "run")
    (tmp_path / "short.jsonl").write_text('{"text": "cat"}\n' * 3)
    with pytest.raises(InputError, match="no text is longer than a segment"):
        train(read_recipe(recipe, [*LM, f'data.train=["{tmp_path / "short.jsonl"}"]']), tmp_path / "short")


def test_training_continues_from_a_language_model(recipe, tmp_path):
    best = train(read_recipe(recipe, [*LM, "optimizer.steps=6"]), tmp_path / "first")
    again = [*LM, f"model.start={best}"]
    train(read_recipe(recipe, again), tmp_path / "second")
    assert losses(tmp_path / "second")[1] < losses(tmp_path / "first")[1]
    with pytest.raises(ConfigError, match=r"model\.segment is 8, but .* has 16"):
        build_model(read_recipe(recipe, [*again, "model.segment=8"]))
    before, after = (NuggetLM.from_pretrained(path) for path in (best, tmp_path / "second" / "best"))
    assert after.config.history == before.config.history == 3


def test_a_segment_comes_with_the_segments_before_it_oldest_first():
    class Numbers:  # a segment and its memory are its index
        def segment(self, place):
            return np.array([place.text, place.segment])

        def get(self, place):
            return place

    target = Target(Place(4, 3), 2)
    tokens = Segments(Numbers(), None)[target]
    assert tokens["ids"].tolist() == [4, 3]
    assert [part.tolist() for part in tokens["context"]] == [[4, 1], [4, 2]]
    assert Segments(Numbers(), Numbers())[target]["history"] == [Place(4, 1), Place(4, 2)]


def test_the_default_history_is_the_largest_of_training(recipe):
    for histories, history in (("[0]", 0), ("[1, 2]", 2), ("[]", 3)):
        changes = [*LM, f"objective.histories={histories}"]
        assert build_model(read_recipe(recipe, changes)).config.history == history


def test_the_segments_of_a_batch_have_the_same_history():
    places = [Place(text, segment) for text in range(4) for segment in range(6)]
    batches = list(SegmentBatches(places, [1, 3], 5, steps=40, seed=0))
    assert batches == list(SegmentBatches(places, [1, 3], 5, steps=40, seed=0))
    seen = set()
    for batch in batches:
        (history,) = {target.history for target in batch}
        seen.add(history)
        assert all(target.place.segment >= history for target in batch)
    assert seen == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("objective.histories=[9]", "must not exceed model.history"),
        ("optimizer.batch_tokens=8", "to hold"),
        ("objective.hide=0.1", "cannot be used with"),
        ("model.segment=1", "model.segment must be at least 2"),
        ("objective.ratios=[0.1]", "have a single ratio"),
        ("optimizer.gradient_checkpointing=true", "cannot be used with"),
    ],
)
def test_invalid_recipes_are_refused(recipe, change, message):
    with pytest.raises(ConfigError, match=message):
        read_recipe(recipe, [*LM, change])
