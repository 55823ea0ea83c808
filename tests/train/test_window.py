"""The window of a recipe: how many tokens the trained model reads at once."""

from __future__ import annotations

import pytest

from tests.tiny import CORPUS
from textnuggets.errors import ConfigError
from textnuggets.train.build import build_model
from textnuggets.train.recipe_io import read_recipe


def test_a_model_reads_documents_longer_than_those_of_training_at_once_if_the_recipe_says_so(recipe):
    text = CORPUS[1]
    for change, window in (([], 24), (["model.window=60"], 60)):
        model = build_model(read_recipe(recipe, ["data.max_tokens=24", *change]))
        assert model.window == window
        (found,) = model.encode([text])
        assert (len(found.windows) == 1) == (window == 60)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["model.window=63"], r"model\.window \(63\) is below data\.max_tokens \(64\)"),
        (["model.window=65"], r"model\.window is 65, but the model takes at most 64"),
        (["model.window=64", "model.start=x", "objective.name=language_model"], "set model.segment"),
    ],
)
def test_a_window_that_does_not_fit_is_refused(recipe, changes, message):
    with pytest.raises(ConfigError, match=message):
        build_model(read_recipe(recipe, changes))
