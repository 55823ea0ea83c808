"""`textnuggets lm` with the adapter of a decoder-only model."""

from __future__ import annotations

import json

import pytest

from tests.causal.setting import SEGMENT, save_base, spoil
from tests.tiny import CORPUS, tiny_model
from textnuggets import CausalNuggetLM, NuggetLM
from textnuggets.causal.config import CausalConfig

TEXT = " ".join(CORPUS)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    save_base(folder / "base")
    config = CausalConfig(segment=SEGMENT, ratio=0.25, scorer_layer=2, rank=2)
    lm = CausalNuggetLM.from_base(folder / "base", config)
    spoil(lm)
    lm.save_pretrained(folder / "adapter")
    return folder / "adapter"


def test_a_prompt_after_a_saved_state_is_continued_like_the_whole_text(run, adapter, tmp_path):
    for name, text in (("start", TEXT), ("rest", CORPUS[0]), ("whole", f"{TEXT} {CORPUS[0]}")):
        (tmp_path / f"{name}.txt").write_text(text)
    done = run("lm", "compress", adapter, tmp_path / "start.txt", "-o", tmp_path / "state")
    assert done.returncode == 0
    assert "tokens read; " in done.stderr
    generate = ("lm", "generate", adapter, "-n", 8, "--prompt")
    after = run(*generate, tmp_path / "rest.txt", "--state", tmp_path / "state")
    at_once = run(*generate, tmp_path / "whole.txt")
    assert after.stdout == at_once.stdout != "\n"
    beams = run(*generate, tmp_path / "whole.txt", "--beams", 2)
    assert beams.returncode == 0


def test_evaluate_writes_all_systems_with_their_provenance(run, adapter, tmp_path):
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": TEXT}) + "\n" for _ in range(2)))
    done = run("lm", "evaluate", adapter, tmp_path / "texts.jsonl", "--tokens", 50, "--out", tmp_path / "out")
    assert done.returncode == 0
    results = json.loads((tmp_path / "out" / "cached_context.json").read_text())
    assert {item["system"] for item in results["results"]} == {
        "full",
        "segments",
        "nuggets",
        "window",
        "every",
    }
    assert results["base"]["model"] == "base"
    assert results["settings"]["tokens"] == 50
    assert (tmp_path / "out" / "cached_context.md").read_text() == done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "{adapter}", "{text}", "--history", "1"], "--history and --stride do not apply"),
        (["evaluate", "{lm}", "{text}", "--tokens", "50"], "--tokens does not apply"),
        (["evaluate", "{lm}", "{text}", "--base", "x"], "--base does not apply"),
        (["evaluate", "{adapter}", "{text}", "--tokens", "5000"], "no text has 5000 tokens"),
        (["generate", "{adapter}", "--prompt", "{text}", "--history", "1"], "--history does not apply"),
        (["generate", "{adapter}", "--prompt", "{text}", "--state", "none"], "none: no such file"),
        (["generate", "{lm}", "--prompt", "{text}", "--state", "{text}"], "--state does not apply"),
        (["compress", "{lm}", "{text}", "-o", "{text}.out"], "is not an adapter"),
        (["compress", "{adapter}", "{text}", "-o", "{text}"], "is the input file: write to another file"),
    ],
)
def test_options_of_the_other_kind_of_model_are_refused(run, adapter, tmp_path, arguments, message):
    (tmp_path / "text.txt").write_text(TEXT)
    NuggetLM.from_nuggets(tiny_model(), segment=16, history=2).save_pretrained(tmp_path / "lm")
    places = {"adapter": adapter, "lm": tmp_path / "lm", "text": tmp_path / "text.txt"}
    done = run("lm", *(part.format(**places) for part in arguments))
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
