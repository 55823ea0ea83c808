"""Fixtures of training runs."""

from __future__ import annotations

import signal

import pytest

from tests.train.setting import make_setting


@pytest.fixture(scope="session")
def recipe(tmp_path_factory):
    return make_setting(tmp_path_factory.mktemp("setting"))


@pytest.fixture(autouse=True)
def signals():
    """Restore the signal handlers, which runs replace."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])


@pytest.fixture(scope="session")
def unbroken(recipe, tmp_path_factory):
    """Folder of a run without interruptions, shared: tests must not change it."""
    from textnuggets.train.recipe_io import read_recipe
    from textnuggets.train.run import train

    out = tmp_path_factory.mktemp("runs") / "unbroken"
    train(read_recipe(recipe), out)
    return out
