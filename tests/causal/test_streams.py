"""Generating, scoring and saving growing texts."""

from __future__ import annotations

import pytest
import torch

from tests.causal.setting import SEGMENT, spoil, tiny_base, tiny_ids
from tests.tiny import CORPUS, tiny_tokenizer
from textnuggets.causal.cache import NuggetCache
from textnuggets.causal.config import CausalConfig
from textnuggets.causal.modeling import CausalNuggetLM
from textnuggets.errors import ConfigError, InputError

LONG = 5 * SEGMENT + 3


@pytest.fixture(scope="module")
def lm() -> CausalNuggetLM:
    return make_lm()


def make_lm(rank: int = 2) -> CausalNuggetLM:
    config = CausalConfig(segment=SEGMENT, ratio=0.25, scorer_layer=2, rank=rank)
    lm = CausalNuggetLM(config, tiny_base(), tiny_tokenizer())
    spoil(lm)
    return lm.eval()


def ids_of(length: int = LONG) -> list[int]:
    return tiny_ids(length, 1)[0].tolist()


def greedy(lm, ids, count):
    """Continuation by the masked pass over the whole text, one token at a time."""
    ids = list(ids)
    for _ in range(count):
        with torch.no_grad():
            ids.append(int(lm.project(lm(torch.tensor([ids])))[0, -1].argmax()))
    return ids[-count:]


@pytest.mark.parametrize("length", [1, 3, SEGMENT, 2 * SEGMENT, LONG])
def test_generating_equals_the_masked_pass_token_by_token(lm, length):
    stream = lm.open(ids_of(length))
    stream.generate(2 * SEGMENT, eos_token_id=None)
    assert stream.ids[length:] == greedy(lm, ids_of(length), 2 * SEGMENT)


def test_the_generate_of_transformers_takes_the_cache(lm):
    ids = tiny_ids(LONG)
    found = lm.base.generate(
        ids, attention_mask=torch.ones_like(ids), past_key_values=NuggetCache(lm), max_new_tokens=12,
        do_sample=False, eos_token_id=None,
    )  # fmt: skip
    for row, start in zip(found.tolist(), ids.tolist(), strict=True):
        assert row[LONG:] == greedy(lm, start, 12)


def test_the_ratio_of_a_cache_decides_its_size(lm):
    columns = [lm.open(ids_of(), ratio).size for ratio in (0.25, 0.5, 1.0)]
    assert columns == [1 + 4 * k + SEGMENT + 2 for k in (2, 4)] + [LONG - 1]


def test_beam_search_leaves_a_stream_that_continues_alike(lm):
    stream = lm.open(ids_of())
    stream.generate(5, num_beams=3, eos_token_id=None)
    expected = greedy(lm, stream.ids, 4)
    stream.generate(4, eos_token_id=None)
    assert stream.ids[-4:] == expected


def test_a_stream_grows_in_parts_as_at_once(lm):
    stream = lm.open()
    for start in range(0, LONG, 5):
        stream.append(ids_of()[start : start + 5])
    whole = lm.open(ids_of())
    assert stream.ids == whole.ids
    assert stream.size == whole.size
    torch.testing.assert_close(stream.cache.layers[3].keys, whole.cache.layers[3].keys, atol=1e-4, rtol=1e-4)


def test_scores_are_the_log_probabilities_of_the_masked_pass(lm):
    ids = ids_of()
    with torch.no_grad():
        log = lm.project(lm(torch.tensor([ids])))[0].log_softmax(-1)
    expected = log[range(LONG - 1), ids[1:]].tolist()
    assert lm.open().score(ids) == pytest.approx(expected, abs=1e-4)
    stream = lm.open(ids[:10])
    assert stream.score(ids[10:20]) == pytest.approx(expected[9:19], abs=1e-4)
    assert stream.score(ids[20:]) == pytest.approx(expected[19:], abs=1e-4)


@pytest.mark.parametrize("length", [0, 1, SEGMENT + 1, LONG])
def test_a_saved_stream_continues_alike(lm, tmp_path, length):
    stream = lm.open(ids_of(length), 0.5)
    stream.save(tmp_path / "stream.safetensors")
    loaded = lm.load_stream(tmp_path / "stream.safetensors")
    assert loaded.ids == stream.ids
    assert loaded.nbytes == stream.nbytes
    for both in (stream, loaded):
        both.append(ids_of(4))
        both.generate(2 * SEGMENT, eos_token_id=None)
    assert loaded.ids == stream.ids


def test_a_stream_of_other_weights_is_refused(lm, tmp_path):
    lm.open(ids_of()).save(tmp_path / "stream")
    with pytest.raises(InputError, match="written by a model with different weights"):
        make_lm(rank=3).load_stream(tmp_path / "stream")
    (tmp_path / "other").write_text("text")
    with pytest.raises(InputError, match="is not a saved stream"):
        lm.load_stream(tmp_path / "other")


def test_the_cache_is_smaller_than_that_of_all_tokens(lm):
    stream = lm.open(ids_of())
    full = lm.base(torch.tensor([stream.ids]), use_cache=True).past_key_values
    assert stream.full_nbytes == sum(layer.keys.nbytes + layer.values.nbytes for layer in full.layers)
    assert stream.nbytes < stream.full_nbytes


def test_text_is_passed_on_as_it_is_generated(lm):
    parts: list[str] = []
    text = lm.open(CORPUS[0]).generate(10, parts.append, eos_token_id=None)
    assert len(parts) > 1
    assert "".join(parts) == text


def test_messages_of_a_chat_are_formatted_by_the_template_of_the_base(lm):
    messages = [{"role": "user", "content": CORPUS[0]}]
    with pytest.raises(InputError, match="no chat template"):
        lm.open(messages)
    lm.tokenizer.chat_template = "{% for m in messages %}{{ m.role }} {{ m.content }}{% endfor %} the"
    try:
        stream = lm.open(messages)
    finally:
        lm.tokenizer.chat_template = None
    assert stream.ids == lm.tokenizer(f"user {CORPUS[0]} the", add_special_tokens=False).input_ids


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda lm: lm.open([1, 100_000]), InputError, "100000 is not a token id of this model"),
        (lambda lm: lm.open([]).generate(3), InputError, "an empty text cannot be continued"),
        (lambda lm: lm.open([5]).generate(0), ConfigError, "max_new_tokens must be a whole number"),
        (
            lambda lm: lm.generate([5], 3, past_key_values=None),
            ConfigError,
            "does not take 'past_key_values'",
        ),
        (lambda lm: lm.open([5]).generate(3, print, num_beams=2), ConfigError, "on_tokens cannot be used"),
        (lambda lm: lm.open([5], ratio=2), ConfigError, "ratio must lie in"),
    ],
)
def test_wrong_calls_are_refused(lm, call, error, message):
    with pytest.raises(error, match=message):
        call(lm)


def test_padded_batches_and_embeddings_are_refused(lm):
    mask = torch.tensor([[0, 1, 1]])
    with pytest.raises(InputError, match="texts of equal length"):
        lm.base(
            input_ids=torch.ones(1, 3, dtype=torch.long), attention_mask=mask, past_key_values=NuggetCache(lm)
        )
    with pytest.raises(InputError, match="reads input_ids"):
        lm.base(inputs_embeds=torch.ones(1, 3, 32), past_key_values=NuggetCache(lm))
    with pytest.raises(ConfigError, match="cannot remove 2 tokens"):
        NuggetCache(lm).crop(-2)
