"""Compare what the model attends to in full attention, one masked pass and streaming, for every family."""

from __future__ import annotations

import pytest
import torch

from tests.causal.setting import CONFIGS, SEGMENT, tiny_base, tiny_ids, tiny_reader
from textnuggets.causal.cache import NuggetCache

FAMILIES = list(CONFIGS)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_with_all_tokens_as_nuggets_an_untrained_model_is_its_base(family, attention):
    ids = tiny_ids()
    with torch.no_grad():
        full = tiny_base(family, attention)(ids).logits
        reader = tiny_reader(family, attention)
        at_once = reader.project(reader(ids, ratio=1.0))
        streamed = reader.project(reader.read(ids, NuggetCache(reader, 1.0)))
    torch.testing.assert_close(at_once, full, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(streamed, full, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_streaming_with_the_pruned_cache_equals_the_masked_pass(family, attention):
    reader, ids = tiny_reader(family, attention, trained=True), tiny_ids()
    cache = NuggetCache(reader)
    with torch.no_grad():
        at_once = reader(ids)
        streamed = reader.read(ids, cache)
        by_token = NuggetCache(reader)
        one_by_one = [
            reader.base(input_ids=token, past_key_values=by_token).logits for token in ids.split(1, 1)
        ]
    torch.testing.assert_close(streamed, at_once, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(torch.cat(one_by_one, 1), reader.project(at_once), atol=1e-4, rtol=1e-4)
    # 5 full segments: 2 nuggets of each of the first four, the first token, and the last full segment and the rest.
    assert cache.columns == by_token.columns == 1 + 4 * 2 + SEGMENT + 5


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_compressed_changes_the_prediction(family):
    reader, ids = tiny_reader(family, trained=True), tiny_ids()
    with torch.no_grad():
        few, all_of_them = reader(ids), reader(ids, ratio=1.0)
    whole = 2 * SEGMENT
    torch.testing.assert_close(few[:, :whole], all_of_them[:, :whole])
    assert not torch.allclose(few[:, whole:], all_of_them[:, whole:], atol=1e-3)


def test_selection_never_sees_the_future():
    reader, ids = tiny_reader(trained=True), tiny_ids()
    with torch.no_grad():
        before = reader(ids)
        for position in (SEGMENT - 1, 2 * SEGMENT + 3):
            changed = ids.clone()
            changed[:, position] = 4 + (ids[:, position] - 3) % 20
            after = reader(changed)
            torch.testing.assert_close(after[:, :position], before[:, :position])
            assert not torch.allclose(after[:, position:], before[:, position:])


def test_a_distant_token_reaches_the_prediction_only_through_the_nuggets_and_the_first_token():
    reader, ids = tiny_reader(trained=True, selector="even"), tiny_ids()
    hidden = ids.clone()
    hidden[:, 1] += 1  # in the first segment, and no nugget
    assert reader.pick(torch.zeros(1, SEGMENT, 32), 0.25, True)[0].tolist() == [[4, 7]]
    with torch.no_grad():
        changed = (reader(hidden) - reader(ids)).abs().amax((0, 2))
    assert (changed[1:] > 1e-4).all()  # gathered into the nuggets


@pytest.mark.parametrize("by_segments", [False, True])
def test_gradients_reach_the_scorer_the_types_and_lora_alone(by_segments):
    reader, ids = tiny_reader(trained=True), tiny_ids()
    states = reader(ids, by_segments=by_segments)
    reader.project(states).logsumexp(-1).sum().backward()
    trained = {name for name, value in reader.named_parameters() if value.requires_grad}
    reached = {
        name for name, value in reader.named_parameters() if value.grad is not None and value.grad.any()
    }
    # The output bias of the scorer shifts all scores of a model alike, but not those of whole segments.
    assert reached == trained
    assert {name.split(".")[0] for name in reached} == {"scorer", "feedback", "base"}
    assert all("lora" in name and ".layers.0." not in name for name in reached if name.startswith("base"))


def test_both_ways_to_train_have_the_same_gradients():
    found = []
    for by_segments in (False, True):
        reader, ids = tiny_reader(trained=True), tiny_ids()
        states = reader(ids, by_segments=by_segments)
        reader.project(states).logsumexp(-1).sum().backward()
        found.append([value.grad for value in reader.parameters() if value.requires_grad])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)


def test_bare_is_the_base_without_lora_and_types():
    ids = tiny_ids()
    with torch.no_grad():
        full = tiny_base()(ids).logits
        reader = tiny_reader(trained=True)
        assert not torch.allclose(reader.base(ids).logits, full, atol=1e-3)
        with reader.bare():
            torch.testing.assert_close(reader.base(ids).logits, full)
