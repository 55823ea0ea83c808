"""Streams: appended, generated, saved and resumed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.lm.setting import LONG, SIZE, ids_of, logits, make_lm, segments
from tests.tiny import CORPUS, tiny_model, tiny_tokenizer
from textnuggets import NuggetLM
from textnuggets.errors import ConfigError, InputError
from textnuggets.evaluate.perplexity import evaluate_perplexity, make_article
from textnuggets.io.wikitext import split_words
from textnuggets.lm.generation import OPTIONS, check_options
from textnuggets.lm.stream import Stream, decode_after

MEMORIES = ("nuggets", "tokens", "compressive")


def make(memory="nuggets", family="bart", history=2):
    return make_lm(family, history=history, memory=memory, pooled=4)


def predictions(lm, current, past):
    """Return the logits of a segment after past segments, from one call of `forward`."""
    if lm.config.memory == "nuggets":
        return logits(lm, current, past)
    context = torch.tensor([[token for segment in past for token in segment]]) if past else None
    with torch.no_grad():
        return lm(torch.tensor([current]), context=context).logits[0]


@pytest.mark.parametrize(
    ("memory", "family"),
    [*((memory, "bart") for memory in MEMORIES), ("nuggets", "marian"), ("nuggets", "t5")],
)
def test_streaming_equals_predicting_segment_by_segment(memory, family):
    lm = make(memory, family)
    ids = ids_of()
    parts = segments(-(-len(ids) // SIZE))
    expected = []
    for place, part in enumerate(parts):
        found = predictions(lm, part, parts[max(0, place - 2) : place]).log_softmax(-1)
        expected += found[range(len(part)), part].tolist()
    assert lm.open("").score(ids) == pytest.approx(expected, abs=1e-4)
    # The same stream in pieces.
    stream = lm.open(ids[:5])
    assert stream.score(ids[5:40]) + stream.score(ids[40:]) == pytest.approx(expected[5:], abs=1e-4)
    # Evaluation without overlap gives the same result.
    (result,) = evaluate_perplexity(lm, [make_article(split_words(LONG), tiny_tokenizer())], stride=SIZE)
    assert result["token_perplexity"]["value"] == pytest.approx(math.exp(-np.mean(expected)), rel=1e-4)


@pytest.mark.parametrize("memory", MEMORIES)
def test_only_the_last_segments_are_kept_for_any_length(memory):
    ids = ids_of() * 3
    lm = make(memory)
    at_once, by_token = lm.open(ids), lm.open("")
    for token in ids:
        by_token.append([token])
    assert at_once.length == by_token.length == len(ids)
    assert at_once.current == by_token.current == ids[len(ids) // SIZE * SIZE :]
    last = segments(len(ids) // SIZE, ids)[-2:]
    expected = lm.remember(last) if memory == "nuggets" else last
    for stream in (at_once, by_token):
        assert len(stream.past) == 2
        for kept, wanted in zip(stream.past, expected, strict=True):
            if memory == "nuggets":
                torch.testing.assert_close(kept.vectors, wanted.vectors)
                torch.testing.assert_close(kept.scores, wanted.scores)
            else:
                assert kept == wanted
    nuggets = 5  # a quarter of a segment and its two special tokens
    assert at_once.size == {"nuggets": 2 * nuggets, "tokens": 2 * SIZE, "compressive": 2 * SIZE // 4}[memory]
    assert len(lm.open(ids, history=0).past) == 0
    assert len(lm.open(ids, history=3).past) == 3


@pytest.mark.parametrize("memory", MEMORIES)
def test_greedy_generation_picks_the_most_likely_token_of_forward(memory):
    lm = make(memory)
    ids = ids_of()[: 2 * SIZE + 3]
    stream = lm.open(ids)
    new = stream._continue(SIZE - 3, check_options(lm, {}))
    segment = ids[2 * SIZE :]
    for token in new:
        found = predictions(lm, [*segment, token], segments(2))[-1]
        found[tiny_tokenizer().all_special_ids] = -math.inf
        assert int(found.argmax()) == token
        segment.append(token)
    assert len(segment) == SIZE
    assert lm.open(ids, history=0).score(new) != pytest.approx(lm.open(ids).score(new), abs=1e-3)


@pytest.mark.parametrize("memory", MEMORIES)
def test_generating_continues_across_segments(memory):
    lm = make(memory)
    shown = []
    stream = lm.open(LONG)
    length = stream.length
    text = stream.generate(3 * SIZE, shown.append)
    assert "".join(shown) == text
    assert stream.length == length + 3 * SIZE
    assert lm.generate(LONG, 3 * SIZE) == text
    assert lm.generate(LONG, 3 * SIZE, history=0) != text


def test_a_continuation_starts_with_a_space_where_needed():
    lm = make()
    ids = ids_of()[: 2 * SIZE + 3]
    new = lm.open(ids)._continue(8, check_options(lm, {}))
    decode = tiny_tokenizer().decode
    assert decode(ids) + lm.generate(ids, 8) == decode([*ids, *new])
    assert decode_after(tiny_tokenizer(), ids_of("cat"), ids_of("dog")) == " dog"


def test_sampling_draws_different_texts():
    lm = make_lm()
    torch.manual_seed(1)
    drawn = {lm.open(CORPUS[0]).generate(10, do_sample=True, temperature=5.0) for _ in range(3)}
    assert len(drawn) == 3


def test_sampling_excludes_no_token_by_default():
    lm = make()
    torch.manual_seed(0)
    options = {"do_sample": True, "temperature": 1000.0}
    drawn = {token for _ in range(200) for token in lm.open("")._continue(1, check_options(lm, options))}
    assert len(drawn) > 60  # the default top_k of transformers is 50
    options = check_options(lm, {**options, "top_k": 3})
    few = {token for _ in range(10) for token in lm.open("")._continue(1, options)}
    assert len(few) <= 3


@pytest.mark.parametrize("memory", MEMORIES)
def test_beam_search_finds_a_text_at_least_as_likely(memory):
    lm = make(memory)
    ids = ids_of()[: 2 * SIZE + 3]
    found = [
        sum(lm.open(ids).score(lm.open(ids)._continue(SIZE - 3, check_options(lm, {"num_beams": beams}))))
        for beams in (1, 4)
    ]
    assert found[1] >= found[0] - 1e-4


@pytest.mark.parametrize("memory", MEMORIES)
def test_options_against_repetition_work_across_segments(memory):
    lm = make(memory)

    def trigrams(**options):
        stream, written = lm.open(LONG), []
        append = stream.append
        stream.append = lambda ids: (written.extend(ids), append(ids))
        stream.generate(3 * SIZE, **options)
        return list(zip(written, written[1:], written[2:], strict=False))

    free, bound = trigrams(), trigrams(no_repeat_ngram_size=3)
    assert len(set(free)) < len(free)
    assert len(set(bound)) == len(bound) == 3 * SIZE - 2
    assert len(set(trigrams(repetition_penalty=5.0))) > len(set(free))


def test_options_that_end_a_text_early_or_return_several_are_refused():
    lm = make()
    for option in ("stop_strings", "eos_token_id", "num_return_sequences", "use_cache", "generation_config"):
        with pytest.raises(ConfigError, match=f"generate does not support '{option}'; use {OPTIONS[0]}"):
            lm.generate(LONG, 3, **{option: 2})
    with pytest.raises(ConfigError, match="num_beams must be"):
        lm.generate(LONG, 3, num_beams=None)


def test_forbidden_words_are_added_to_special_tokens():
    lm = make()
    ids = ids_of()[: 2 * SIZE + 3]
    first, *_ = lm.open(ids)._continue(1, check_options(lm, {}))
    settings = check_options(lm, {"bad_words_ids": [[first]]})
    assert lm.open(ids)._continue(1, settings) != [first]
    assert {token for (token,) in settings["bad_words_ids"]} == {*tiny_tokenizer().all_special_ids, first}


def test_text_shown_before_an_interruption_is_part_of_the_stream():
    lm = make()
    stream, shown = lm.open(LONG), []

    def listen(part):
        shown.append(part)
        if len(shown) == SIZE + 3:  # in the second or third segment
            raise KeyboardInterrupt

    length = stream.length
    with pytest.raises(KeyboardInterrupt):
        stream.generate(3 * SIZE, listen)
    written = stream.length - length
    assert SIZE < written < 3 * SIZE
    again = lm.open(LONG)
    text = again.generate(written)
    assert "".join(shown) == text
    assert (again.current, again.last) == (stream.current, stream.last)


def test_a_failure_leaves_the_stream_unchanged(monkeypatch):
    lm = make()
    stream = lm.open(LONG)
    before = (stream.length, list(stream.current), list(stream.last), list(stream.past))
    for wrong in ([-3], [10**6]):
        with pytest.raises(
            InputError, match=f"{wrong[0]} is not a token id of this model: use ids from 0 to"
        ):
            stream.append([7, *wrong])
    monkeypatch.setattr(lm, "remember", lambda *_: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(MemoryError):
        stream.append(ids_of())
    assert (stream.length, stream.current, stream.last, stream.past) == before


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_stream_is_saved_and_continued(memory, tmp_path):
    lm = make(memory)
    stream = lm.open(LONG)
    stream.save(tmp_path / "new" / "state")
    again = Stream.load(lm, tmp_path / "new" / "state")
    assert (again.length, again.current, again.last) == (stream.length, stream.current, stream.last)
    for kept, wanted in zip(again.past, stream.past, strict=True):
        for one, other in zip(kept, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert again.score(ids_of()) == stream.score(ids_of())


def test_a_stream_is_not_resumed_by_another_model(tmp_path):
    make().open(LONG).save(tmp_path / "state")
    others = {
        "weights": NuggetLM.from_nuggets(tiny_model(scorer_layer=2), segment=SIZE),
        "segment": make_lm(history=2, pooled=4),
        "ratio": make(),
        "memory": make("tokens"),
    }
    others["segment"].config.segment = SIZE // 2
    others["ratio"].config.nugget.ratio = 0.5
    aged = make()
    with torch.no_grad():
        aged.ages.weight += 1
    for name, lm in [*others.items(), ("weights", aged)]:
        with pytest.raises(InputError, match=f"state was written by a model with different {name}"):
            Stream.load(lm, tmp_path / "state")
    save_file({"x": torch.zeros(1)}, tmp_path / "list", {"textnuggets": "[]"})
    (tmp_path / "state").write_bytes(b"broken")
    for name in ("state", "list", "none"):
        with pytest.raises(InputError, match="not a saved stream"):
            Stream.load(make(), tmp_path / name)
