"""Model cards: metadata that a hub reads, with the figures of results files; and pushing a model with its card."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from huggingface_hub import ModelCard

from tests.hub import running_hub
from tests.pages import ROOT
from tests.tiny import tiny_model
from textnuggets.model.card import model_card
from textnuggets.shipped import JOBS, find_shipped
from tools.model_card import CARDS, MISSING, fill_card

FACTS = {"pieces": 32000, "window": 256}
PUSH = """
import sys
from textnuggets import NuggetModel

model = NuggetModel.from_pretrained(sys.argv[1])
print(model.push_to_hub("me/nuggets", "First", token="t", compact_weights=sys.argv[2] == "small"))
again = NuggetModel.from_pretrained("me/nuggets")
text = "Rain fell all night."
print(abs(model.encode(text).vectors - again.encode(text).vectors).max() < float(sys.argv[3]))
"""


def write_results(folder, question, rows):
    data = [{"source": "retrieval/time", "sha256": "0"}]
    table = folder / f"{question}.md"
    table.write_text("| a table |\n|---|\n", encoding="utf-8")
    table.with_suffix(".json").write_text(json.dumps({"question": question, "data": data, "results": rows}))
    return table


def figures(card):
    return {
        (found.task_type, found.metric_type, found.metric_value) for found in card.data.eval_results or []
    }


@pytest.mark.parametrize("name", JOBS)
def test_the_card_of_a_model_that_ships_has_the_metadata_of_a_hub(name):
    card = ModelCard(fill_card(name, [], **FACTS))
    assert card.data.library_name == "textnuggets"
    assert {"nugget", "multi-vector"} <= set(card.data.tags)
    assert ("late-interaction" in card.data.tags) == (name == "search")
    assert card.data.license
    assert card.data.base_model
    assert "wikipedia" in card.data.datasets
    assert MISSING in card.text
    assert not re.search(r"\{\w*\}", card.text), "a placeholder is left"


@pytest.mark.parametrize("name", JOBS)
def test_the_card_beside_the_weights_has_the_metadata_of_its_template(name):
    shipped = ModelCard.load(find_shipped(name) / "README.md").data.to_dict()
    template = ModelCard.load(CARDS / f"{name}.md").data.to_dict()
    assert {key: shipped[key] for key in template} == template


def test_a_card_has_the_figures_of_its_own_system_and_no_other(tmp_path):
    measures = {"nDCG@10": {"mean": 72.41}, "RR": {"mean": 78.5}}
    rows = [{"system": "search", "measures": measures}, {"system": "bm25", "measures": {"RR": {"mean": 1.0}}}]
    table = write_results(tmp_path, "similarity", rows)
    card = ModelCard(fill_card("search", [table], **FACTS))
    assert figures(card) == {("text-retrieval", "ndcg_at_10", 72.4), ("text-retrieval", "mrr", 78.5)}
    assert {found.dataset_name for found in card.data.eval_results} == {"retrieval/time"}
    assert "| a table |" in card.text


def test_figures_of_reconstruction_and_of_language_models_are_one_for_each_row(tmp_path):
    rows = [{"ratio": ratio, "max_tokens": 128, "bleu": bleu} for ratio, bleu in ((0.1, 56.64), (0.25, 89.7))]
    card = ModelCard(fill_card("reconstruct", [write_results(tmp_path, "reconstruction", rows)], **FACTS))
    assert figures(card) == {("feature-extraction", "bleu", 56.6), ("feature-extraction", "bleu", 89.7)}
    rows = [{"history": h, "stride": 32, "word_perplexity": {"value": 216.1 - h}} for h in (0, 8)]
    card = ModelCard(fill_card("lm", [write_results(tmp_path, "perplexity", rows)], **FACTS))
    assert {value for *_, value in figures(card)} == {216.1, 208.1}


@pytest.mark.parametrize(
    ("objective", "tag"), [("autoencode", "text-compression"), ("contrastive", "late-interaction")]
)
def test_the_card_of_any_saved_model_says_what_it_is_for(objective, tag):
    config = tiny_model().config.__class__(**{**tiny_model().config.to_dict(), "objective": objective})
    tags = ModelCard(model_card(config)).data.tags
    assert "multi-vector" in tags
    assert {"text-compression", "late-interaction"} & set(tags) == {tag}


@pytest.mark.parametrize(("size", "error"), [("large", 1e-6), ("small", 0.2)])
def test_a_model_is_pushed_to_a_hub_with_its_card_and_loaded_from_there(tmp_path, size, error):
    tiny_model().save_pretrained(tmp_path / "model")
    with running_hub() as hub:
        environment = {
            **os.environ,
            "HF_ENDPOINT": hub.address,
            "HF_HOME": str(tmp_path / "cache"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1",  # files go through LFS, which the stand-in knows
            "HF_HUB_OFFLINE": "0",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, "-c", PUSH, str(tmp_path / "model"), size, str(error)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert hub.unknown == []
        assert "validating metadata" not in done.stderr  # a warning about the card
        address, same = done.stdout.split()
        assert (address.startswith(f"{hub.address}/me/nuggets/commit/"), same) == (True, "True")
        files = hub.repositories["me/nuggets"]
        assert [commit["summary"] for commit in hub.commits] == ["First"]
    assert {"config.json", "tokenizer.json", "README.md"} <= set(files)
    assert ("model.safetensors" in files) == (size == "large")
    assert "multi-vector" in ModelCard(files["README.md"].decode()).data.tags
