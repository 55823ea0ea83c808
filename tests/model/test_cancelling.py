"""Encoding and decoding can be cancelled from another thread."""

from __future__ import annotations

from itertools import count

import pytest
from transformers import StoppingCriteria

from tests.tiny import CORPUS
from textnuggets.analysis.highlight import highlight
from textnuggets.model.cancelling import Cancelled, cancelled_if, check_cancelled


def after(checks: int):
    """Return a function that is True from a number of calls on."""
    calls = count()
    return lambda: next(calls) >= checks


@pytest.fixture
def steps(model):
    """Number of passes of the encoder and the decoder."""
    made = {"encoder": 0, "decoder": 0}

    def record(name):
        def hook(*_):
            made[name] += 1

        return hook

    hooks = [
        module.register_forward_pre_hook(record(name))
        for name, module in (("encoder", model.adapter.encoder), ("decoder", model.backbone.get_decoder()))
    ]
    yield made
    for hook in hooks:
        hook.remove()


def test_encoding_ends_at_the_next_batch(model, steps):
    with pytest.raises(Cancelled), cancelled_if(after(2)):
        model.encode(CORPUS, batch_size=1)
    assert steps == {"encoder": 2, "decoder": 0}


@pytest.mark.parametrize("beams", [1, 3])
def test_decoding_ends_at_the_next_token(model, steps, beams):
    nuggets = model.encode(CORPUS[0])
    with pytest.raises(Cancelled), cancelled_if(after(3)):  # one check before the first token
        model.reconstruct(nuggets, num_beams=beams)
    assert steps["decoder"] == 3


def test_highlighting_ends_at_the_next_window(model, steps):
    with pytest.raises(Cancelled), cancelled_if(after(1)):
        highlight(model, " ".join(CORPUS * 40))
    assert steps["encoder"] == 1


def test_outside_of_the_block_nothing_is_cancelled(model):
    with cancelled_if(lambda: True), pytest.raises(Cancelled):
        check_cancelled()
    check_cancelled()
    assert len(model.encode(CORPUS)) == len(CORPUS)


def test_criteria_of_the_caller_still_stop_the_decoder(model, steps):
    class AfterTwo(StoppingCriteria):
        def __call__(self, input_ids, *_, **__):
            return input_ids.new_full((len(input_ids),), input_ids.shape[1] >= 3, dtype=bool)

    model.reconstruct(model.encode(CORPUS[0]), num_beams=1, stopping_criteria=[AfterTwo()])
    assert steps["decoder"] == 2
