"""Texts that grow: remembered as they do, generated, saved and continued."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.lm.setting import LONG, SIZE, ids_of, make_lm
from tests.tiny import CORPUS, tiny_model, tiny_tokenizer
from textnuggets import NuggetLM
from textnuggets.errors import InputError
from textnuggets.lm.perplexity import evaluate_perplexity, make_article
from textnuggets.lm.stream import Stream
from textnuggets.lm.wikitext import split_words


@pytest.mark.parametrize("family", ["bart", "marian", "t5"])
def test_streaming_equals_evaluating_in_batches(family):
    lm = make_lm(family)
    ids = ids_of()
    found = lm.open("").score(ids)
    (result,) = evaluate_perplexity(lm, [make_article(split_words(LONG), tiny_tokenizer())])
    assert math.exp(-np.mean(found)) == pytest.approx(result["token_perplexity"]["value"], rel=1e-4)
    # In pieces, it is the same stream.
    stream = lm.open(ids[:5])
    pieces = stream.score(ids[5:40]) + stream.score(ids[40:])
    assert pieces == pytest.approx(found[5:], abs=1e-4)


def test_memory_stays_the_same_however_long_the_text():
    stream = make_lm(history=2).open(ids_of() * 10)
    assert len(stream.past) == 2
    assert len(stream.current) < SIZE
    assert stream.length == 10 * len(ids_of())
    wide = make_lm(history=2).open(ids_of() * 10, max_history=5)
    assert len(wide.past) == 5


def test_generating_goes_on_past_segments_and_greedy_is_what_scoring_prefers():
    lm = make_lm()
    stream = lm.open(CORPUS[0])
    shown = []
    length = stream.length
    text = stream.generate(3 * SIZE, shown.append)
    assert "".join(shown) == text
    assert stream.length == length + 3 * SIZE
    # Greedy: of every generated token, no other that may be written is more likely.
    again = lm.open(CORPUS[0])
    new = again._continue(SIZE - len(again.current), None, {})
    state = lm.open(CORPUS[0])
    allowed = [i for i in range(len(tiny_tokenizer())) if i not in tiny_tokenizer().all_special_ids]
    for token in new:
        scores = {other: lm_score(state, other) for other in (token, *allowed[::7])}
        assert max(scores, key=scores.get) == token
        state.append([token])


def lm_score(stream, token):
    copy = Stream(stream.lm, stream.max_history)
    copy.past, copy.current, copy.length = list(stream.past), list(stream.current), stream.length
    return copy.score([token])[0]


def test_sampling_and_beams_go_through_transformers_generate():
    lm = make_lm()
    torch.manual_seed(1)
    drawn = {lm.open(CORPUS[0]).generate(10, do_sample=True, temperature=5.0) for _ in range(3)}
    assert len(drawn) == 3

    def likelihood(ids):
        return sum(lm.open(CORPUS[0]).score(ids))

    assert likelihood(beams_ids(lm, 4)) >= likelihood(beams_ids(lm, 1)) - 1e-4


def beams_ids(lm, beams):
    stream = lm.open(CORPUS[0])
    return stream._continue(SIZE - len(stream.current), None, {"num_beams": beams})


def test_a_stream_is_saved_and_continued(tmp_path):
    lm = make_lm()
    stream = lm.open(LONG)
    stream.save(tmp_path / "state")
    again = Stream.load(lm, tmp_path / "state")
    assert again.length == stream.length
    assert again.generate(20) == stream.generate(20)
    with pytest.raises(InputError, match="other weights"):
        Stream.load(NuggetLM.from_nuggets(tiny_model(scorer_layer=2), segment=SIZE), tmp_path / "state")
    (tmp_path / "state").write_bytes(b"broken")
    with pytest.raises(InputError, match="no saved stream"):
        Stream.load(lm, tmp_path / "state")
