"""The fingerprint of a model covers all weights, the tokenizer and the settings, and its cache is never stale."""

from __future__ import annotations

import json
import os
from copy import deepcopy
from pathlib import Path

import pytest
import torch

import textnuggets
from tests.tiny import CORPUS, FAMILIES, tiny_model
from textnuggets.bulk.encode import encode_to_parquet
from textnuggets.errors import IndexFileError
from textnuggets.io import digest_cache
from textnuggets.io.documents import Document
from textnuggets.model import fingerprint as module
from textnuggets.model.fingerprint import fingerprint, has_fingerprint
from textnuggets.search.index import NuggetIndex

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of its own, used for models of any size."""
    monkeypatch.setattr(digest_cache, "CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "CACHED_BYTES", 0)
    return tmp_path / "cache"


@pytest.fixture
def hashed(monkeypatch):
    """The tensors that were hashed."""
    seen = []
    original = module._digest
    monkeypatch.setattr(module, "_digest", lambda value: seen.append(value) or original(value))
    return seen


@pytest.fixture
def folder(tmp_path):
    tiny_model().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def change_tokenizer(model, edit):
    """Replace the tokenizer of a model by a changed one."""
    from tokenizers import Tokenizer

    tokenizer = deepcopy(model.tokenizer)
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    edit(parts)
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(parts))
    model._tokenizer = tokenizer


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_has_the_same_fingerprint_before_and_after_saving(family, tmp_path):
    model = tiny_model(family)
    with torch.no_grad():
        model.value.weight += 0.01
    model.save_pretrained(tmp_path)
    assert fingerprint(textnuggets.load(tmp_path)) == fingerprint(model)


def test_half_precision_has_the_fingerprint_of_its_values(tmp_path):
    model = tiny_model().half()
    model.save_pretrained(tmp_path)
    assert fingerprint(textnuggets.load(tmp_path, dtype=torch.float32)) == fingerprint(model)


@pytest.mark.parametrize("place", [0, 1, 2, 12_345, -1])
def test_every_value_of_a_large_tensor_counts(place):
    model = tiny_model()
    model.backbone.resize_token_embeddings(2000)
    before = fingerprint(model)
    model.backbone.get_input_embeddings().weight.data.view(-1)[place] += 1e-3
    assert fingerprint(model) != before


def test_the_tokenizer_counts():
    model = tiny_model()
    before = fingerprint(model)

    def swap(parts):
        first, second = parts["model"]["vocab"][10], parts["model"]["vocab"][11]
        first[0], second[0] = second[0], first[0]

    change_tokenizer(model, swap)
    assert fingerprint(model) != before
    model = tiny_model()
    change_tokenizer(model, lambda parts: parts.update(normalizer=None))
    assert fingerprint(model) != before


def test_the_padding_of_the_last_call_does_not(model):
    before = fingerprint(model)
    model.tokenizer(CORPUS, padding="max_length", truncation=True, max_length=50)
    assert fingerprint(model) == before
    model.tokenizer(CORPUS)


def test_the_settings_count():
    assert fingerprint(tiny_model(selector="spread")) != fingerprint(tiny_model())


@pytest.mark.usefixtures("cache")
def test_files_are_hashed_once(folder, hashed):
    first = fingerprint(textnuggets.load(folder))
    assert hashed
    hashed.clear()
    assert fingerprint(textnuggets.load(folder)) == first
    assert not hashed


def test_small_models_and_models_without_a_folder_are_not_cached(folder, cache, monkeypatch):
    fingerprint(tiny_model())
    monkeypatch.setattr(module, "CACHED_BYTES", 10**9)
    fingerprint(textnuggets.load(folder))
    assert not cache.exists()


@pytest.mark.usefixtures("cache")
def test_weights_that_changed_after_loading_are_hashed_again(folder):
    first = fingerprint(textnuggets.load(folder))
    model = textnuggets.load(folder)
    weight = model.backbone.get_input_embeddings().weight
    weight.data.view(-1)[1] += 1e-3  # unknown to autograd
    changed = fingerprint(model)
    assert changed != first
    assert fingerprint(textnuggets.load(folder)) == first
    model.save_pretrained(folder)
    assert fingerprint(textnuggets.load(folder)) == changed


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_file_of_another_time_or_size_is_hashed_again(folder, hashed, name):
    first = fingerprint(textnuggets.load(folder))
    hashed.clear()
    about = (folder / name).stat()
    os.utime(folder / name, ns=(about.st_atime_ns, about.st_mtime_ns + 1))
    assert fingerprint(textnuggets.load(folder)) == first
    assert hashed
    hashed.clear()
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    assert fingerprint(textnuggets.load(folder)) == first
    assert hashed


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", "[" * 100_000, '{"state": 1}', '{"digest": 5, "state": null}']
)
def test_a_damaged_cache_is_harmless(folder, cache, content):
    first = fingerprint(textnuggets.load(folder))
    (entry,) = cache.iterdir()
    entry.write_text(content)
    assert fingerprint(textnuggets.load(folder)) == first
    assert json.loads(entry.read_text())["digest"] == first


def test_a_cache_that_cannot_be_written_is_harmless(folder, cache):
    expected = fingerprint(tiny_model())
    cache.write_text("a file where a folder should be")
    assert fingerprint(textnuggets.load(folder)) == expected


@pytest.mark.usefixtures("cache")
def test_a_user_without_home_has_no_cache(folder, monkeypatch):
    monkeypatch.setattr(digest_cache, "CACHE", "~nobody-of-this-name/cache")
    assert fingerprint(textnuggets.load(folder)) == fingerprint(tiny_model())


def test_fingerprints_of_early_versions_are_recognized():
    model = textnuggets.load(ROOT / "models" / "textnuggets_models" / "reconstruct")
    assert has_fingerprint(model, "fc1856c7080fb2af")  # of this model, by an early version
    assert not has_fingerprint(textnuggets.load("search"), "fc1856c7080fb2af")
    assert has_fingerprint(model, fingerprint(model))


def test_an_index_of_an_early_version_opens_but_does_not_take_files_of_this_one(model, tmp_path):
    with NuggetIndex.create(tmp_path / "index", model) as index:
        index.add_documents([Document("1", CORPUS[0])])
    path = tmp_path / "index" / "index.json"
    about = json.loads(path.read_text())
    del about["digest"]  # early versions had none
    path.write_text(json.dumps({**about, "fingerprint": module._sampled_fingerprint(model)}))
    encode_to_parquet(model, [Document("2", CORPUS[1])], tmp_path / "a.parquet", name="m", with_text=True)
    with NuggetIndex.open(tmp_path / "index", model) as index:
        assert len(index) == 1
        with pytest.raises(IndexFileError, match=r"an early version, .* encode or index the texts again"):
            index.add_encoded(tmp_path / "a.parquet")
