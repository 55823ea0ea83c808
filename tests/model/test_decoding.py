"""Public behaviour of reconstruct."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tiny import CORPUS, tiny_model
from textnuggets import NuggetModel, Nuggets
from textnuggets.errors import BackboneError, ConfigError, InputError


@pytest.mark.parametrize(
    ("options", "message"),
    [({"batch_size": -1}, "got -1"), ({"num_beams": 0}, "got 0"), ({"residual": "plus"}, "got 'plus'")],
)
def test_impossible_options_of_reconstruct_are_refused(model, options, message):
    with pytest.raises(ConfigError, match=message):
        model.reconstruct(model.encode("cat"), **options)


def test_only_nuggets_are_reconstructed(model):
    with pytest.raises(InputError, match="item 1 is int"):
        model.reconstruct([model.encode("cat"), 1])


def test_a_trained_model_gives_the_texts_back_at_any_batch_size(copier: NuggetModel):
    for batch_size in (1, 16):
        assert copier.reconstruct(copier.encode(CORPUS), batch_size=batch_size) == CORPUS


def test_a_text_longer_than_the_window_comes_back_whole(copier: NuggetModel):
    text = " ".join(CORPUS[:3])  # any two of them exceed the window of 64 tokens
    nuggets = copier.encode(text)
    assert len(nuggets.windows) == 3
    assert copier.reconstruct(nuggets) == text


def test_an_empty_text_comes_back_empty(copier: NuggetModel):
    assert copier.reconstruct(copier.encode(["", CORPUS[0], " \n"])) == ["", CORPUS[0], " \n"]


def test_what_a_text_decodes_to_does_not_depend_on_what_shares_the_batch(model):
    nuggets = model.encode(["cat", CORPUS[1]])  # untrained, so it decodes up to the length limit
    together, alone = model.reconstruct(nuggets, num_beams=1), model.reconstruct(nuggets[0], num_beams=1)
    assert together[0] == alone
    assert len(together[1]) > len(alone)


def test_generation_settings_for_summaries_do_not_affect_reconstruction(copier: NuggetModel):
    settings = copier.backbone.generation_config
    settings.no_repeat_ngram_size, settings.min_length, settings.repetition_penalty = 1, 60, 5.0
    try:
        assert copier.reconstruct(copier.encode(CORPUS)) == CORPUS
    finally:
        settings.no_repeat_ngram_size, settings.min_length, settings.repetition_penalty = None, None, None


def test_float16_nuggets_decode_to_the_same_text(copier: NuggetModel):
    assert copier.reconstruct(copier.encode(CORPUS, dtype="float16")) == CORPUS


def test_an_encoder_says_that_it_cannot_decode():
    model = tiny_model("bert")
    with pytest.raises(BackboneError, match=r"a bert backbone, which has no decoder.*load\('reconstruct'\)"):
        model.reconstruct(model.encode(["cat"]))


def test_nuggets_of_another_width_are_refused(model):
    nuggets = model.encode("cat")
    wide = Nuggets(
        np.zeros((len(nuggets), 7), np.float32),
        nuggets.scores,
        nuggets.positions,
        nuggets.spans,
        nuggets.tokens,
        nuggets.windows,
    )
    with pytest.raises(InputError, match="7 dimensions, this model 32"):
        model.reconstruct(wide)
    with pytest.raises(InputError, match="cannot have 1 scores"):
        Nuggets(
            np.zeros((2, 7), np.float32),
            nuggets.scores[:1],
            nuggets.positions,
            nuggets.spans,
            nuggets.tokens,
            nuggets.windows,
        )


def test_texts_are_decoded_with_five_beams_by_default(model, monkeypatch):
    seen = []
    original = model.adapter.generate
    monkeypatch.setattr(
        model.adapter,
        "generate",
        lambda *given, **options: seen.append(options["num_beams"]) or original(*given, **options),
    )
    nuggets = model.encode(CORPUS[0])
    model.reconstruct(nuggets)
    model.reconstruct(nuggets, num_beams=2)
    assert seen == [5, 2]
