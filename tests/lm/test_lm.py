"""Language models with compressed history: what they read, saving and loading, errors, commands."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from transformers import AutoModel

from tests.lm.setting import LONG, SIZE, logits, make_lm, segments
from tests.tiny import CORPUS, DECODERS, tiny_model, tiny_tokenizer
from textnuggets import NuggetLM, NuggetModel, load
from textnuggets.cli import main
from textnuggets.errors import BackboneError, CheckpointError, ConfigError
from textnuggets.evaluate.perplexity import evaluate_perplexity, make_article, past_spans, windows_of
from textnuggets.io.wikitext import split_words
from textnuggets.lm.memory import History

# -------------------------------------------------------------------- what the decoder reads


@pytest.mark.parametrize("family", DECODERS)
def test_a_later_token_changes_no_earlier_logit(family):
    lm = make_lm(family)
    first, second, current = segments(3)
    before = logits(lm, current, [first, second])
    changed = logits(lm, [*current[:-1], 7], [first, second])
    torch.testing.assert_close(before[:-1], changed[:-1])
    # Position i predicts token i, so even the last logits do not see the last token.
    torch.testing.assert_close(before[-1], changed[-1])
    assert not torch.allclose(before, logits(lm, [7, *current[1:]], [first, second]))


def test_history_is_read_and_older_segments_are_not():
    lm = make_lm(history=2)
    article = make_article(split_words(LONG), tiny_tokenizer())
    other = make_article(split_words(LONG), tiny_tokenizer())
    other.ids[: 2 * SIZE] = 9  # the first two segments
    whole = [evaluate_perplexity(lm, [a], [2])[0]["token_perplexity"]["value"] for a in (article, other)]
    assert whole[0] != whole[1]
    from textnuggets.evaluate import perplexity

    def score(a, history):
        windows = windows_of([a], SIZE, SIZE)
        window = windows[4:5]  # sees segments 2 and 3 with h = 2, and 1 to 3 with h = 3
        spans = past_spans(window[0].start, SIZE, history)
        with torch.inference_mode():
            made = lm.remember([a.ids[s:e].tolist() for s, e in spans])
            memories = {(0, *span): memory for span, memory in zip(spans, made, strict=True)}
            return perplexity._predict(lm, [a], window, memories, history)[0]

    assert np.abs(score(article, 2) - score(other, 2)).max() == 0
    assert np.abs(score(article, 3) - score(other, 3)).max() > 1e-6


@pytest.mark.parametrize("family", DECODERS)
def test_without_history_it_is_the_decoder_without_cross_attention(family):
    lm = make_lm(family)
    (current,) = segments(1)
    ids = torch.tensor([current])
    with torch.no_grad():
        decoder = lm.nugget.backbone.get_decoder()
        states = decoder(input_ids=lm.begin(ids), use_cache=False).last_hidden_state
        expected = lm.adapter.project(states)[0]
    torch.testing.assert_close(logits(lm, current, []), expected)


def test_rows_without_a_past_are_not_affected_by_rows_with_one():
    lm = make_lm()
    first, second, third = segments(3)
    with torch.no_grad():
        past = lm.remember([first, second])
        history = History.of([[], past, past[1:]])
        together = lm(torch.tensor([third] * 3), history).logits
    for row, memories in enumerate(([], [first, second], [second])):
        torch.testing.assert_close(together[row], logits(lm, third, memories), atol=1e-5, rtol=1e-5)


def test_the_last_segment_is_one_segment_old():
    lm = make_lm()
    long, short = lm.remember([segments(1)[0], [7]])
    assert len(long.scores) == 5
    assert len(short.scores) == 1
    found = History.of([[long, short], [short], []])
    assert found.ages.tolist() == [[2] * 5 + [1], [1] + [0] * 5, [0] * 6]
    assert found.kept.tolist() == [[True] * 6, [True] + [False] * 5, [False] * 6]
    torch.testing.assert_close(found.vectors[0], torch.cat([long.vectors, short.vectors]))


def test_ages_beyond_those_of_training_use_the_largest_age():
    lm = make_lm(history=3)
    first, second = segments(2)
    with torch.no_grad():
        history = History.of([lm.remember([first, second])])
        nuggets = [lm.memory_of(history._replace(ages=history.ages + more))[0] for more in (0, 1, 2, 99)]
    # Ages are 2 and 1, then 3 and 2, then 3 is the largest.
    assert not torch.allclose(nuggets[0], nuggets[1])
    torch.testing.assert_close(nuggets[1][:, :5], nuggets[2][:, :5])
    torch.testing.assert_close(nuggets[3], nuggets[0] - lm.ages(history.ages) + lm.ages.weight[3])


def test_the_order_of_the_past_matters():
    lm = make_lm()
    first, second, third = segments(3)
    assert not torch.allclose(logits(lm, third, [first, second]), logits(lm, third, [second, first]))


def test_tokens_as_memory_are_a_longer_context():
    lm = make_lm(memory="tokens", history=2)
    first, second, third = (torch.tensor([part]) for part in segments(3))
    with torch.no_grad():
        found = lm(third, context=torch.cat([first, second], 1)).logits
        whole = lm(torch.cat([first, second, third], 1)).logits[:, 2 * SIZE :]
    torch.testing.assert_close(found, whole)


def test_a_compressive_memory_is_the_mean_of_keys_and_values():
    lm = make_lm(memory="compressive", history=2, pooled=4)
    first, second, third = (torch.tensor([part]) for part in segments(3))
    with torch.no_grad():
        cache = lm.compress(torch.cat([first, second], 1))
        keys = lm.adapter.keys_and_values(lm.begin(torch.cat([first, first[:, :1]], 1)))[0][0]
        assert cache.layers[0].keys.shape[2] == 2 * SIZE // 4
        torch.testing.assert_close(cache.layers[0].keys[:, :, 0], keys[:, :, 1:5].mean(2))
        found = lm(third, context=torch.cat([first, second], 1)).logits
        other = lm(third, context=torch.cat([second, first], 1)).logits
    assert not torch.allclose(found, other)


@pytest.mark.parametrize("memory", ["tokens", "compressive"])
def test_every_token_of_the_context_is_read_and_no_later_one(memory):
    lm = make_lm(memory=memory, history=2, pooled=4)
    context, current = (torch.tensor([part]) for part in segments(2))
    with torch.no_grad():
        found = lm(current, context=context).logits
        for place in range(SIZE):
            other = context.clone()
            other[0, place] = 9 if context[0, place] != 9 else 10
            assert not torch.allclose(lm(current, context=other).logits, found)
        later = current.clone()
        later[0, -1] = 9 if current[0, -1] != 9 else 10
        torch.testing.assert_close(lm(later, context=context).logits, found)


# -------------------------------------------------------------------- saving and loading


def test_a_language_model_is_saved_and_loaded(tmp_path):
    lm = make_lm()
    lm.save_pretrained(tmp_path)
    again = NuggetLM.from_pretrained(tmp_path)
    assert again.config.segment == SIZE
    assert (
        NuggetLM.from_pretrained(tmp_path, attn_implementation="eager").adapter.config._attn_implementation
        == "eager"
    )
    torch.testing.assert_close(
        logits(again, segments(3)[2], segments(2)), logits(lm, segments(3)[2], segments(2))
    )
    assert again.open(CORPUS[0]).generate(5) == lm.open(CORPUS[0]).generate(5)


def test_only_weights_that_differ_from_the_base_are_stored(tmp_path):
    tiny_model().save_pretrained(tmp_path / "base")
    base = load(tmp_path / "base")
    lm = NuggetLM.from_nuggets(load(tmp_path / "base"), segment=SIZE)
    with torch.no_grad():
        for weight in lm.adapter.decoder.layers.parameters():
            weight += 0.01
    lm.save_difference(tmp_path / "lm", str(tmp_path / "base"), base)
    again = NuggetLM.from_pretrained(tmp_path / "lm")
    torch.testing.assert_close(
        logits(again, segments(3)[2], segments(2)), logits(lm, segments(3)[2], segments(2)), atol=0.05, rtol=0
    )
    assert str(tmp_path) not in (tmp_path / "lm" / "config.json").read_text().replace(
        f'"base": "{tmp_path}', ""
    )
    # A loaded model is saved with all its weights; loading options are respected.
    again.save_pretrained(tmp_path / "whole")
    whole = NuggetLM.from_pretrained(tmp_path / "whole")
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(value, again.state_dict()[name], rtol=0, atol=0)
    half = NuggetLM.from_pretrained(tmp_path / "lm", dtype=torch.bfloat16, attn_implementation="eager")
    assert {value.dtype for value in half.state_dict().values()} == {torch.bfloat16}
    assert half.adapter.config._attn_implementation == "eager"
    for options, dtype in (({"dtype": "bfloat16"}, torch.bfloat16), ({"dtype": "auto"}, torch.float32)):
        assert NuggetLM.from_pretrained(tmp_path / "lm", **options).dtype == dtype
    found = AutoModel.from_pretrained(tmp_path / "lm")
    assert isinstance(found, NuggetLM)
    assert found.config.nugget is found.nugget.config
    places = json.loads((tmp_path / "lm" / "compact.json").read_text())["tensors"]
    assert not any("encoder.layers" in name for name in places)
    other = tiny_model(scorer_layer=2)
    shutil.rmtree(tmp_path / "base")
    other.save_pretrained(tmp_path / "base")
    with pytest.raises(CheckpointError, match="needs the model"):
        NuggetLM.from_pretrained(tmp_path / "lm")


def test_the_language_model_of_the_package_reads_its_history(tmp_path, run):
    lm = NuggetLM.from_pretrained("lm")
    text = "The satellite was launched in October. " * 40
    scores = [np.mean(lm.open(text, history=h).score(" The satellite was launched")) for h in (0, 8)]
    assert scores[1] > scores[0] + 0.1
    (tmp_path / "text.txt").write_text(text)
    done = run("lm", "generate", "lm", "--prompt", tmp_path / "text.txt", "-n", 3)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "nuggets" in done.stderr
    with pytest.raises(CheckpointError, match="is a language model"):
        NuggetModel.from_pretrained("lm")


def test_models_and_settings_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(BackboneError, match="no decoder, which a language model needs"):
        NuggetLM.from_nuggets(tiny_model("bert"), segment=SIZE)
    with pytest.raises(ConfigError, match="positions, but the decoder has"):
        NuggetLM.from_nuggets(tiny_model(), segment=500)
    with pytest.raises(ConfigError, match="memory must be one of"):
        make_lm(memory="all")
    with pytest.raises(ConfigError, match="cannot be pooled"):
        make_lm(memory="compressive", pooled=5)
    with pytest.raises(ConfigError, match="positions, but the decoder has"):
        make_lm(memory="tokens").open("", history=9)
    with pytest.raises(ConfigError, match="exceed the encoder's window of 64"):
        NuggetLM.from_nuggets(tiny_model(), segment=64)
    with pytest.raises(ConfigError, match="'sentence_boundary' cannot be used"):
        NuggetLM.from_nuggets(tiny_model(selector="sentence_boundary"), segment=SIZE)
    with pytest.raises(ConfigError, match="positions, but the decoder has"):
        evaluate_perplexity(
            make_lm(memory="tokens"), [make_article(split_words(LONG), tiny_tokenizer())], [9]
        )
    tiny_model().save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="not a language model"):
        NuggetLM.from_pretrained(tmp_path)


# -------------------------------------------------------------------- the commands


def test_the_commands_evaluate_and_generate(tmp_path, capsys, monkeypatch):
    make_lm().save_pretrained(tmp_path / "lm")
    (tmp_path / "text.txt").write_text(LONG)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["textnuggets", "lm", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, *capsys.readouterr()

    code, out, _ = run("evaluate", tmp_path / "lm", tmp_path / "text.txt", "--history", "0,1", "--json")
    assert code == 0
    assert [item["history"] for item in json.loads(out)["results"]] == [0, 1]
    assert json.loads(out)["versions"]["torch"]
    code, out, err = run("evaluate", tmp_path / "lm", tmp_path / "text.txt", "--out", tmp_path / "results")
    assert "h = 3: perplexity by word" in out
    assert "words" in err
    kept = json.loads((tmp_path / "results" / "perplexity.json").read_text())
    assert [item["history"] for item in kept["results"]] == [3]
    assert "| 3 |" in (tmp_path / "results" / "perplexity.md").read_text()
    code, out, err = run("generate", tmp_path / "lm", "--prompt", tmp_path / "text.txt", "-n", 12)
    assert code == 0
    assert out.strip()
    assert "3 segments as" in err
    generate = ["generate", tmp_path / "lm", "--prompt", tmp_path / "text.txt"]
    for arguments, message in (
        (["generate", tmp_path / "lm", "--prompt", tmp_path / "none"], "no such file"),
        (["evaluate", tmp_path / "lm", tmp_path / "text.txt", "--stride", 5], "does not divide"),
        (["evaluate", tmp_path / "none", tmp_path / "text.txt"], "cannot load"),
        (["evaluate", tmp_path / "lm", tmp_path / "text.txt", "--out", tmp_path / "text.txt"], "is a file"),
        (
            ["evaluate", tmp_path / "lm", tmp_path / "text.txt", "--ratio", 7, "--history", 0],
            "must be above 0 and at most 1, got 7",
        ),
        ([*generate, "--sample", "--beams", 3], "cannot be combined"),
        ([*generate, "--top-p", 0.5], "no effect without --sample"),
        ([*generate, "--seed", 2**32], "--seed"),
    ):
        code, _, err = run(*arguments)
        assert code == 2
        assert message in err
