"""Byte fallback and token content, with the model of `lm`, which has a Unigram tokenizer without byte fallback."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import textnuggets
from textnuggets import NuggetConfig, NuggetModel
from textnuggets.errors import BackboneError
from textnuggets.model.byte_fallback import PRINTABLE, add_byte_fallback, extend_tokenizer
from textnuggets.model.tokenization import token_content

FOLDER = Path(__file__).parents[2] / "models" / "textnuggets_models" / "reconstruct"
TEXT = "The cat sat on the mat, and the dog lay by the door, because it had rained all night."


@pytest.fixture(scope="module")
def model():
    return textnuggets.load(FOLDER)


@pytest.fixture(scope="module")
def tokenizer(model):
    return extend_tokenizer(model.tokenizer)[0]


def back(tokenizer, text):
    return tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True)


def test_every_printable_character_of_latin_1_comes_back(tokenizer):
    for character in [*PRINTABLE, *"“”‘’–—…€™″"]:
        text = f"a {character}b c{character} m{character}"
        assert back(tokenizer, text) == text
        assert tokenizer.unk_token_id not in tokenizer(text).input_ids


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], exclude_characters="\u2581")))
def test_any_character_comes_back_through_its_bytes(tokenizer, text):
    assert back(tokenizer, f"x {text} y") == " ".join(f"x {text} y".split())


def test_vectors_of_ordinary_text_do_not_change(model):
    larger = add_byte_fallback(model)
    before, after = model.encode(TEXT), larger.encode(TEXT)
    np.testing.assert_array_equal(before.vectors, after.vectors)
    assert larger.reconstruct(after, num_beams=1) == model.reconstruct(before, num_beams=1)
    assert larger.get_input_embeddings().num_embeddings == len(larger.tokenizer) > len(model.tokenizer)


def test_byte_fallback_survives_saving(model, tmp_path):
    add_byte_fallback(model).save_pretrained(tmp_path)
    again = NuggetModel.from_pretrained(tmp_path)
    assert back(again.tokenizer, "½ | 東京") == "½ | 東京"


def test_other_tokenizers_are_refused():
    with pytest.raises(BackboneError, match="is for Unigram tokenizers"):
        add_byte_fallback(textnuggets.load("search"))
    with pytest.raises(BackboneError, match="'even_content' needs a Unigram tokenizer"):
        token_content(textnuggets.load("search").tokenizer, 10)


def test_rare_tokens_have_more_content_than_frequent_ones(model):
    content = token_content(model.tokenizer, len(model.tokenizer))
    the, rare = model.tokenizer.convert_tokens_to_ids(["▁the", "▁Xavier"])
    assert 2 <= content[the] < 4 < content[rare] <= 16


def test_a_model_keeps_the_content_of_its_tokens_when_saved(model, tmp_path):
    config = NuggetConfig(
        selector="even_content", scorer_layer=1, residual="off", backbone=model.config.backbone
    )
    made = NuggetModel(config, model.backbone)
    made._tokenizer = model.tokenizer
    made.measure_content()
    made.save_pretrained(tmp_path)
    again = NuggetModel.from_pretrained(tmp_path)
    torch.testing.assert_close(again.content, made.content)
    text = "It cost 48,213.77 dollars in 1931, and that was all there was to be said about it by them then."
    found = again.encode(text, ratio=0.3)
    assert found.tokens == made.encode(text, ratio=0.3).tokens
    figures = [one for one in found if text[slice(*one.span)].strip(",. ").isdigit()]
    assert len(figures) >= 2
