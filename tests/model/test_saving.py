"""Saving and loading by Hugging Face conventions: folders, Auto classes, the Hub."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sacrebleu.metrics.bleu import BLEU
from transformers import AutoConfig, AutoModel, AutoTokenizer

import textnuggets
from tests.tiny import CONFIGS, CORPUS, FAMILIES, tiny_model, tiny_tokenizer
from textnuggets import NuggetConfig, NuggetModel
from textnuggets.errors import BackboneError, CheckpointError, ConfigError, MissingExtraError


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_loads_as_it_was(family, tmp_path):
    model = tiny_model(family)
    torch.nn.init.normal_(model.feedback.types.weight)
    model.save_pretrained(tmp_path)
    again = textnuggets.load(tmp_path)
    for (name, a), b in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    for a, b in zip(model.encode(CORPUS), again.encode(CORPUS), strict=True):
        assert np.array_equal(a.vectors, b.vectors)
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    assert frozen
    assert frozen == [name for name, p in again.named_parameters() if not p.requires_grad]


def test_the_folder_follows_the_conventions(tmp_path):
    tiny_model().save_pretrained(tmp_path)
    files = {path.name for path in tmp_path.iterdir()}
    assert {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "generation_config.json",
        "README.md",
    } <= files
    assert not list(tmp_path.glob("*.bin"))
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "nugget"
    assert "library_name: textnuggets" in (tmp_path / "README.md").read_text()


def test_the_auto_classes_know_it(tmp_path):
    tiny_model().save_pretrained(tmp_path)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), NuggetConfig)
    model = AutoModel.from_pretrained(tmp_path)
    assert isinstance(model, NuggetModel)
    assert len(model.encode(CORPUS[0])) > 0
    assert (
        AutoTokenizer.from_pretrained(tmp_path)(CORPUS[0]).input_ids == tiny_tokenizer()(CORPUS[0]).input_ids
    )


def test_the_generation_config_is_saved(tmp_path):
    model = tiny_model("mbart")
    model.backbone.generation_config.forced_bos_token_id = 7
    model.save_pretrained(tmp_path)
    assert textnuggets.load(tmp_path).backbone.generation_config.forced_bos_token_id == 7


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_text("{")])
def test_a_missing_or_damaged_generation_config_is_an_error(tmp_path, damage):
    tiny_model().save_pretrained(tmp_path)
    damage(tmp_path / "generation_config.json")
    with pytest.raises(CheckpointError, match="cannot load"):
        textnuggets.load(tmp_path)


def test_a_backbone_whose_generation_config_cannot_be_saved_is_refused_when_it_loads(tmp_path):
    tiny_model().backbone.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    config = NuggetConfig(scorer_layer=1)
    NuggetModel.from_backbone(tmp_path, config)
    (tmp_path / "generation_config.json").write_text('{"output_attentions": true}')
    with pytest.raises(CheckpointError, match="output_attentions"):
        NuggetModel.from_backbone(tmp_path, config)


def test_a_backbone_loads_from_a_folder(tmp_path):
    bare = tiny_model("bart").backbone
    bare.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    model = NuggetModel.from_backbone(tmp_path, NuggetConfig(scorer_layer=1))
    for (name, a), b in zip(bare.state_dict().items(), model.backbone.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    assert model.config.backbone_name == str(tmp_path)
    punctuation = tiny_tokenizer().convert_ids_to_tokens(model.config.punctuation_ids)
    assert sorted(token.lstrip("▁") for token in punctuation) == [",", "."]


def test_half_precision_is_kept_but_a_cpu_computes_in_full(tmp_path):
    tiny_model().to(torch.float16).save_pretrained(tmp_path)
    kept = NuggetModel.from_pretrained(tmp_path)
    assert {p.dtype for p in kept.parameters()} == {torch.float16}
    assert textnuggets.load(tmp_path, device="cpu").scorer.out.weight.dtype == torch.float32
    asked = textnuggets.load(tmp_path, device="cpu", dtype=torch.float16)
    assert asked.scorer.out.weight.dtype == torch.float16


def test_a_backbones_own_float32_parts_stay_so(tmp_path):
    tiny_model("t5").backbone.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    model = NuggetModel.from_backbone(tmp_path, NuggetConfig(scorer_layer=1), dtype=torch.float16)
    kept = {name for name, p in model.named_parameters() if p.dtype == torch.float32}
    assert kept
    assert all(".wo." in name for name in kept)
    assert len(model.encode(CORPUS[0])) > 0


def test_a_card_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    tiny_model().save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


def test_all_files_come_from_the_requested_revision(tmp_path, monkeypatch):
    tiny_model().save_pretrained(tmp_path)
    seen = []
    from textnuggets.model import saving

    original = saving.load_tokenizer
    monkeypatch.setattr(saving, "load_tokenizer", lambda *a, **hub: seen.append(hub) or original(*a))
    NuggetModel.from_pretrained(tmp_path, revision="v2")
    assert seen == [{"revision": "v2"}]


def test_the_hub_gets_the_whole_folder_with_its_card(monkeypatch):
    pushed, commits, branches = {}, [], []

    class Api:
        def __init__(self, token=None):
            self.token = token

        def create_repo(self, repo_id, **_):
            return SimpleNamespace(repo_id=repo_id)

        def create_branch(self, repo_id, branch, exist_ok):
            branches.append((repo_id, branch, exist_ok))

        def upload_folder(self, repo_id, folder_path, **commit):
            pushed[repo_id] = {path.name for path in Path(folder_path).iterdir()}
            commits.append(commit)
            return SimpleNamespace(commit_url=f"hub/{repo_id}")

    monkeypatch.setattr("textnuggets.model.saving.HfApi", Api)
    assert tiny_model().push_to_hub("me/nuggets") == "hub/me/nuggets"
    assert {"model.safetensors", "README.md", "tokenizer.json", "config.json"} <= pushed["me/nuggets"]
    assert commits[0]["commit_message"] == "Upload nugget model"
    tiny_model().push_to_hub("me/small", "Smaller", revision="int8", compact_weights=True)
    assert "compact.json" in pushed["me/small"]
    assert branches == [("me/small", "int8", True)]
    assert (commits[1]["commit_message"], commits[1]["revision"]) == ("Smaller", "int8")


def test_every_shipped_model_loads_by_its_name_and_search_is_the_default():
    assert textnuggets.load().config.objective == "contrastive"
    assert textnuggets.load("search").config.name_or_path == textnuggets.load().config.name_or_path
    assert isinstance(textnuggets.load("lm"), textnuggets.NuggetLM)
    assert NuggetModel.from_pretrained("reconstruct").config.objective == "autoencode"
    assert NuggetConfig.from_pretrained("reconstruct").selector == "even_content"
    old, new = textnuggets.load("default"), textnuggets.load("reconstruct")
    assert old.config.name_or_path == new.config.name_or_path


def test_an_unknown_name_lists_the_shipped_models_without_asking_a_hub(monkeypatch):
    monkeypatch.setattr(
        "huggingface_hub.file_download.hf_hub_download", lambda *_, **__: pytest.fail("asked")
    )
    for load in (textnuggets.load, NuggetModel.from_pretrained, textnuggets.NuggetLM.from_pretrained):
        with pytest.raises(CheckpointError, match=r"there is no model 'serch': give search, reconstruct, lm"):
            load("serch")


def test_a_model_whose_distribution_is_missing_names_the_install_line(monkeypatch):
    monkeypatch.setattr("textnuggets.shipped.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"'lm' needs .*pip install 'textnuggets\[models\]'"):
        textnuggets.load("lm")


def test_loading_prints_nothing(capfd):
    textnuggets.load("search")
    assert capfd.readouterr() == ("", "")


def test_the_model_that_ships_turns_english_into_few_vectors_and_back():
    model = textnuggets.load("reconstruct")
    text = (
        "Rain fell all night; in the morning, the river had risen over the bridge, and nobody could cross it."
    )
    nuggets = model.encode(text, ratio=0.5)
    assert len(nuggets) <= nuggets.token_count / 2 + 1
    assert BLEU(effective_order=True).sentence_score(model.reconstruct(nuggets), [text]).score > 70
    at_a_tenth = model.encode(" ".join([text] * 3), ratio=0.1)
    assert {",", ".", ";", "</s>"} & set(at_a_tenth.tokens)
    folder = Path(model.config.name_or_path)
    assert all(file.stat().st_size < 50_000_000 for file in folder.iterdir())
    assert sum(file.stat().st_size for file in folder.iterdir()) < 100_000_000
    config = json.loads((folder / "config.json").read_text())
    assert not [value for value in (config, config["backbone"]) if "_name_or_path" in value]
    assert "OPUS-MT" in (folder / "README.md").read_text()


def test_other_models_and_missing_folders_are_named(tmp_path):
    tiny_model("bart").backbone.save_pretrained(tmp_path / "bart")
    with pytest.raises(CheckpointError, match="is a 'bart' model, not a nugget model"):
        textnuggets.load(tmp_path / "bart")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"it has no config\.json"):
        textnuggets.load(tmp_path / "empty")
    with pytest.raises(CheckpointError, match="cannot load"):
        textnuggets.load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="cannot load"):
        NuggetModel.from_backbone(str(tmp_path / "nowhere"))


def test_a_truncated_weight_file_is_a_checkpoint_error(tmp_path):
    tiny_model().save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="cannot load"):
        textnuggets.load(tmp_path)


def test_weights_that_lack_a_part_are_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    tiny_model().save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["scorer.out.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lacks .*scorer\.out\.weight"):
        textnuggets.load(tmp_path)


def test_a_model_without_tokenizer_says_what_to_do():
    model = NuggetModel.from_backbone(CONFIGS["bart"](), NuggetConfig(scorer_layer=1))
    with pytest.raises(ConfigError, match=r"pass one to NuggetModel\.from_backbone"):
        model.encode("cat")


def test_a_tokenizer_that_adds_no_special_token_is_refused():
    import copy

    from tokenizers.processors import TemplateProcessing

    bare = copy.deepcopy(tiny_tokenizer())
    bare.backend_tokenizer.post_processor = TemplateProcessing(single="$A", special_tokens=[])
    with pytest.raises(BackboneError, match="adds no special token"):
        NuggetModel.from_backbone(CONFIGS["bart"](), NuggetConfig(scorer_layer=1), bare)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ratio": 0.0}, "ratio must lie"),
        ({"ratio": "0.1"}, "ratio must lie"),
        ({"scorer_layer": -1}, "scorer_layer must be a whole number"),
        ({"residual": "plus"}, "residual must be one of add, straight_through, off; got 'plus'"),
        ({"window": 4}, "window must be a whole number of at least 16"),
        ({"ration": 0.3}, "unknown setting 'ration': did you mean 'ratio'"),
        ({"feedback": "no"}, "feedback must be True or False, got 'no'"),
        ({"selector": ["learned"]}, "selector must be a string"),
        ({"backbone": "bart"}, "backbone must be a configuration or None, got 'bart'"),
        ({"punctuation_ids": "ab"}, "punctuation_ids must be a list of ids, got 'ab'"),
        ({"punctuation_ids": [1.5]}, "punctuation_ids must be a whole number of at least 0, got 1.5"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        NuggetConfig(**settings)
