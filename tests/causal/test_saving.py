"""Adapters: saved in a few kilobytes, loaded with their base, and refused with another one or damaged."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import textnuggets
from tests.causal.setting import SEGMENT, save_base, spoil, tiny_base, tiny_ids
from tests.tiny import tiny_tokenizer
from textnuggets import CausalNuggetLM, NuggetLM
from textnuggets.causal.config import CausalConfig
from textnuggets.errors import BackboneError, CheckpointError, ConfigError, MissingExtraError

SETTINGS = {"segment": SEGMENT, "ratio": 0.25, "scorer_layer": 2, "rank": 2}


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """Folder of a tiny base model."""
    folder = tmp_path_factory.mktemp("models") / "base"
    save_base(folder)
    return folder


@pytest.fixture
def lm(base) -> CausalNuggetLM:
    lm = CausalNuggetLM.from_base(base, CausalConfig(**SETTINGS))
    spoil(lm)
    return lm


def states(lm):
    with torch.no_grad():
        return lm(tiny_ids())


def test_a_loaded_adapter_computes_the_same(lm, base, tmp_path):
    lm.save_pretrained(tmp_path / "adapter")
    for loaded in (
        CausalNuggetLM.from_pretrained(tmp_path / "adapter"),
        NuggetLM.from_pretrained(tmp_path / "adapter", base=base),
        textnuggets.load(tmp_path / "adapter", base=base),
    ):
        assert isinstance(loaded, CausalNuggetLM)
        torch.testing.assert_close(states(loaded), states(lm))
        assert vars(loaded.config)["segment"] == SEGMENT


def test_an_adapter_holds_its_own_weights_alone_and_names_its_base(lm, base, tmp_path):
    lm.save_pretrained(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
    stored = load_file(tmp_path / "model.safetensors")
    assert stored.keys() == {name for name, value in lm.named_parameters() if value.requires_grad}
    about = json.loads((tmp_path / "config.json").read_text())
    assert about["base"] == str(base)
    assert len(about["base_weights"]) == 32


def test_the_base_is_recognized_in_half_precision(lm, tmp_path):
    lm.save_pretrained(tmp_path)
    loaded = CausalNuggetLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert loaded.dtype == torch.bfloat16
    assert {value.dtype for value in loaded.adapter_weights().values()} == {torch.float32}
    with torch.no_grad():
        at_once = loaded(tiny_ids())
        streamed = loaded(tiny_ids(), by_segments=True)
    assert at_once.dtype == streamed.dtype == torch.bfloat16


def test_another_base_is_refused(lm, tmp_path):
    lm.save_pretrained(tmp_path / "adapter")
    other = tiny_base()
    with torch.no_grad():
        other.model.norm.weight *= 1.1
    other.save_pretrained(tmp_path / "other")
    tiny_tokenizer().save_pretrained(tmp_path / "other")
    with pytest.raises(
        CheckpointError, match=r"needs the base .* with the fingerprint \w+, but .*other' has \w+"
    ):
        CausalNuggetLM.from_pretrained(tmp_path / "adapter", base=tmp_path / "other")
    with pytest.raises(CheckpointError, match="Give its folder as base="):
        CausalNuggetLM.from_pretrained(tmp_path / "adapter", base=tmp_path / "none")


@pytest.mark.parametrize("damage", ["missing", "unknown", "shape", "nan", "truncated", "gone"])
def test_damaged_weights_are_refused(lm, tmp_path, damage):
    lm.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    name = "scorer.out.weight"
    if damage == "missing":
        del tensors[name]
    elif damage == "unknown":
        tensors["other"] = tensors[name].clone()
    elif damage == "shape":
        tensors[name] = tensors[name][:, 1:].contiguous()
    elif damage == "nan":
        tensors[name][0, 0] = float("nan")
    save_file(tensors, file)
    if damage == "truncated":
        file.write_bytes(file.read_bytes()[:-10])
    elif damage == "gone":
        file.unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors|cannot load"):
        CausalNuggetLM.from_pretrained(tmp_path)


def test_a_model_of_another_family_is_refused_before_its_weights_are_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(BackboneError, match=r"'gpt2' model, which is not supported .* llama, qwen2"):
        CausalNuggetLM.from_base(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"segment": 1}, "segment must be a whole number of at least 2, got 1"),
        ({"ratio": 0}, "ratio must lie in"),
        ({"scorer_layer": 0}, "scorer_layer must be a whole number of at least 1"),
        ({"selector": "mean"}, "selector must be one of spread, learned, even; got 'mean'"),
        ({"rank": -1}, "rank must be a whole number"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        CausalConfig(**settings)


def test_without_peft_the_extra_is_named(base, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(
        MissingExtraError, match=r"needs the package 'peft': pip install 'textnuggets\[causal\]'"
    ):
        CausalNuggetLM.from_base(base, CausalConfig(**SETTINGS))
    assert CausalNuggetLM.from_base(base, CausalConfig(**{**SETTINGS, "rank": 0})).config.rank == 0


def test_a_scorer_above_the_last_layer_is_refused(base):
    with pytest.raises(ConfigError, match="scorer_layer is 4, but the base has 4 layers: use 1 to 3"):
        CausalNuggetLM.from_base(base, CausalConfig(scorer_layer=4))
