"""The training benchmark, on a tiny backbone: what it compares, not how fast."""

from __future__ import annotations

import json

import pytest
from transformers import AutoModelForSeq2SeqLM

from bench import measuring, table, training
from tests.tiny import CONFIGS, CORPUS, tiny_tokenizer


@pytest.fixture
def backbone(tmp_path):
    config = CONFIGS["marian"]()
    config.encoder_layers, config.max_position_embeddings = 4, 128
    AutoModelForSeq2SeqLM.from_config(config).save_pretrained(tmp_path / "backbone")
    tiny_tokenizer().save_pretrained(tmp_path / "backbone")
    return tmp_path / "backbone"


def test_training_is_also_compared_with_the_same_parts_frozen(backbone, tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "RESULTS", tmp_path / "results")
    trained = []

    def compare(ours, theirs, rounds):
        ours(), theirs()
        trained.append(
            [
                {
                    name.removeprefix("backbone.")
                    for name, weight in side.__self__.model.named_parameters()
                    if weight.requires_grad
                }
                for side in (ours, theirs)
            ]
        )
        return {"ratio": 1.0, "rounds": rounds}

    monkeypatch.setattr(training, "compare", compare)
    monkeypatch.setattr(training, "STEPS", 1)
    (tmp_path / "texts.txt").write_text("\n".join(CORPUS) + "\n")
    training.plain_seq2seq(str(backbone), str(tmp_path / "texts.txt"), "texts", 1)
    of_nuggets = {"scorer", "feedback", "value"}
    for ours, theirs in trained:
        assert {name.split(".")[0] for name in ours - theirs} == of_nuggets
    as_is, alike, sampled = (theirs - ours for ours, theirs in trained)
    assert as_is == sampled
    assert any("encoder.layers.2" in name for name in as_is)  # frozen on our side alone
    assert not alike
    found = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "results").glob("*.json")}
    assert (
        set(found)
        == {"train-vs-seq2seq", "train-vs-seq2seq-frozen", "train-vs-seq2seq-sampled"}
        <= set(table.ORDER)
    )
    assert found["train-vs-seq2seq-frozen"]["claim"].endswith("with the same parts frozen")
