"""Language codes of multilingual backbones, as in the recipes of the paper."""

from __future__ import annotations

import json

import pytest
from transformers import MBart50Tokenizer

import textnuggets
from tests.tiny import CONFIGS, tiny_tokenizer
from tests.train.setting import losses, make_setting
from textnuggets.data.packed import PackedCorpus, tokenizers_of
from textnuggets.errors import BackboneError, ConfigError
from textnuggets.model.backbone import build_backbone
from textnuggets.train.build import build_model
from textnuggets.train.recipe_io import read_recipe
from textnuggets.train.run import train


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Return a recipe with a tiny mBART-50, its tokenizer and English-French pairs."""
    folder = tmp_path_factory.mktemp("mbart")
    path = make_setting(folder)
    spec = json.loads(tiny_tokenizer().backend_tokenizer.to_str())
    pieces = [tuple(piece) for piece in spec["model"]["vocab"]]
    tokenizer = MBart50Tokenizer(vocab=pieces, src_lang="en_XX", tgt_lang="en_XX")
    config = CONFIGS["mbart"]()
    config.vocab_size = len(tokenizer)
    for old in (folder / "backbone").iterdir():
        old.unlink()
    build_backbone(config).save_pretrained(folder / "backbone")
    tokenizer.save_pretrained(folder / "backbone")
    return path


def changes(recipe, *more):
    pairs = f"['{recipe.parent}/pairs.jsonl']"
    translate = [
        "objective.name=translate",
        f"data.train={pairs}",
        f"data.dev={pairs}",
        "data.languages=['en', 'fr']",
    ]
    return [*translate, "optimizer.steps=6", *more]


def test_source_and_target_start_with_their_language_codes(recipe, tmp_path):
    settings = read_recipe(
        recipe,
        changes(
            recipe, "model.source_language=en_XX", "model.target_language=fr_XX", "report.bleu_documents=2"
        ),
    )
    best = train(settings, tmp_path / "run")
    assert losses(tmp_path / "run")[6] < losses(tmp_path / "run")[1]
    model = textnuggets.load(best)
    code = model.tokenizer.convert_tokens_to_ids
    assert model.backbone.generation_config.forced_bos_token_id == code("fr_XX")
    assert model.tokenizer("The cat").input_ids[0] == code("en_XX")
    packed = PackedCorpus(next((recipe.parent / "cache").glob("*.arrow")))
    assert packed[0].input_ids[0] == code("en_XX")
    assert packed[0].labels[0] == code("fr_XX")
    # The decoder starts from </s>, and its first output is the language code.
    shifted = model.adapter.shift(model.tokenizer(text_target="The cat", return_tensors="pt").input_ids)
    assert shifted[0, 0] == model.tokenizer.eos_token_id


def test_a_missing_or_unknown_language_is_an_error(recipe):
    model = build_model(read_recipe(recipe, changes(recipe)))
    with pytest.raises(ConfigError, match=r"set model\.source_language"):
        tokenizers_of(model, read_recipe(recipe, changes(recipe)).packing)
    with pytest.raises(BackboneError, match="no language code 'xx_XX'"):
        tokenizers_of(model, read_recipe(recipe, changes(recipe, "model.target_language=xx_XX")).packing)


def test_language_codes_are_refused_by_a_monolingual_tokenizer(tmp_path):
    settings = read_recipe(make_setting(tmp_path), ["model.target_language=fr_XX"])
    with pytest.raises(BackboneError, match="is not multilingual"):
        tokenizers_of(build_model(settings), settings.packing)
