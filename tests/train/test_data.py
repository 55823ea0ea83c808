"""The cache of packed documents."""

from __future__ import annotations

import os
from pathlib import Path

from tests.tiny import tiny_tokenizer
from tests.train.setting import make_setting
from textnuggets.data.packed import load_corpus
from textnuggets.train.recipe_io import read_recipe


def packed_files(recipe):
    load_corpus(recipe.data.train, recipe.packing, (tiny_tokenizer(), tiny_tokenizer()))
    return sorted(Path(recipe.data.cache).glob("*.arrow"))


def test_documents_are_packed_again_only_if_their_text_changed(tmp_path):
    recipe = read_recipe(make_setting(tmp_path), [])
    first = packed_files(recipe)
    source = tmp_path / "train.jsonl"
    text = source.read_text()
    source.unlink()
    source.write_text(text)
    os.utime(source, (0, 0))
    assert packed_files(recipe) == first

    source.write_text(text.replace("cat", "dog"))
    os.utime(source, (0, 0))
    assert len(packed_files(recipe)) == len(first) + 1
