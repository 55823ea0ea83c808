"""Reconstruction results of a model that copies perfectly."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.tiny import CORPUS, tiny_model
from textnuggets.analysis.bleu import Bleu
from textnuggets.evaluate.reconstruction import evaluate_reconstruction, to_markdown
from textnuggets.evaluate.sample import Sample
from textnuggets.model.fingerprint import fingerprint


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(CORPUS) + "\n")
    return path


@pytest.fixture
def sample(texts, tmp_path):
    return Sample([str(texts)], cache=str(tmp_path / "cache"))


def test_a_perfect_copier_gets_perfect_figures_and_a_starved_one_does_not(copier, sample):
    found = evaluate_reconstruction(copier, sample, [0.5, 0.03], beams=1, lengths=[64])
    whole, starved = found["results"]
    assert (whole["bleu"], whole["exact"], whole["token_accuracy"]) == (pytest.approx(100), 1.0, 1.0)
    assert (whole["numbers"], whole["capitalized"]) == (None, 1.0)
    assert starved["capitalized"] < 1
    assert whole["documents"] == 5
    assert whole["vectors"] == pytest.approx(whole["tokens"] / 2, abs=3)
    assert starved["bleu"] < 50
    assert starved["loss"] > whole["loss"]
    assert whole["rise_interval"] is None
    low, high = starved["rise_interval"]
    assert low < whole["bleu"] - starved["bleu"] < high


def test_the_scores_are_ablated_at_the_ratio_nearest_to_the_models(copier, sample):
    found = evaluate_reconstruction(copier, sample, [0, 0.03, 0.1, 0.5], beams=1, lengths=[64])
    assert (
        [row["ratio"] for row in found["results"] if row["without_scores"]] == [copier.config.ratio] == [0.5]
    )
    off = found["results"][-1]["without_scores"]
    assert off["loss"] != found["results"][-1]["loss"]
    decoded = copier.reconstruct(copier.encode(CORPUS, ratio=0.5), num_beams=1, residual="off")
    assert off["bleu"] == pytest.approx(Bleu().corpus(decoded, CORPUS))
    low, high = off["change_interval"]
    assert low <= off["bleu"] - found["results"][-1]["bleu"] <= high
    assert "Without scores in cross-attention, r = 0.5, up to 64 tokens: BLEU" in to_markdown(found)


@pytest.mark.parametrize(
    "change", [{"residual": "off"}, {"residual": "straight_through"}, {"selector": "chunking"}]
)
def test_a_model_that_adds_no_scores_has_none_to_ablate(change, sample):
    found = evaluate_reconstruction(tiny_model(**change), sample, [0.25], beams=1, lengths=[64])
    assert found["results"][0]["without_scores"] is None


def test_a_ratio_of_zero_is_one_vector_per_document(copier, sample):
    found = evaluate_reconstruction(copier, sample, [0], beams=1, lengths=[64])
    assert found["results"][0]["vectors"] == found["results"][0]["documents"] == 5


def test_for_a_text_longer_than_the_window_it_is_one_vector_per_window(copier, sample, monkeypatch):
    monkeypatch.setattr(copier.config, "window", 16)
    found = evaluate_reconstruction(copier, sample, [0], beams=1, lengths=[64])
    windows = sum(len(item.windows) for item in copier.encode(CORPUS))
    assert found["results"][0]["vectors"] == windows > 5
    assert found["results"][0]["token_accuracy"] is None  # the model never reads so much at once
    assert "| - |" in to_markdown(found)


def test_bleu_is_what_sacrebleus_own_command_says(copier, texts, sample, tmp_path):
    found = evaluate_reconstruction(copier, sample, [0.1], beams=1, lengths=[64])
    decoded = copier.reconstruct(copier.encode(CORPUS, ratio=0.1), num_beams=1)
    (tmp_path / "decoded.txt").write_text("\n".join(decoded) + "\n")
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        str(texts),
        "-i",
        str(tmp_path / "decoded.txt"),
        "-b",
        "-w",
        "6",
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert found["results"][0]["bleu"] == pytest.approx(float(said), abs=1e-5)
    low, high = found["results"][0]["bleu_interval"]
    assert low < found["results"][0]["bleu"] < high


def test_results_hold_settings_data_versions_and_weights(copier, sample):
    found = evaluate_reconstruction(copier, sample, [0.5], beams=1, lengths=[64])
    assert found["settings"]["bleu"].startswith("nrefs:1|case:mixed")
    assert len(found["data"][0]["sha256"]) == 64
    assert {"textnuggets", "torch", "transformers", "sacrebleu"} <= found["versions"].keys()
    assert found["seed"] == 0
    assert found["model"]["weights"] == fingerprint(copier)
    assert found["model"]["selector"] == "learned"


def test_the_command_writes_results_and_names_bad_input(run, copier_folder, texts, tmp_path):
    command = ("evaluate", "reconstruction")
    out = tmp_path / "out"
    done = run(
        *command, copier_folder, texts, "--out", out, "--ratios", "0.5", "--beams", 1, "--max-tokens", 64
    )
    assert done.returncode == 0, done.stderr
    assert "| 0.5 | 64 | 100.0 | 100.0% |" in done.stdout
    assert (out / "reconstruction.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "reconstruction.svg").read_text()
    assert (out / "reconstruction.md").read_text() == done.stdout
    assert json.loads((out / "reconstruction.json").read_text())["results"][0]["documents"] == 5
    for wrong in (
        (copier_folder, texts, "--out", out, "--ratios", "a"),
        (copier_folder, texts, "--out", out, "--ratios", "2"),
        (copier_folder, "none.txt", "--out", out),
        (copier_folder, texts, "--out", texts),
        (tmp_path / "none", texts, "--out", out),
    ):
        failed = run(*command, *wrong)
        assert failed.returncode == 2, failed.stderr
        assert len(failed.stderr.strip().splitlines()) == 1
