"""The compressive memory as a fair baseline: it is trained, and its positions are those of training."""

from __future__ import annotations

import math

import pytest
import torch

from tests.lm.setting import SIZE, ids_of, make_lm, segments
from tests.tiny import DECODERS, WINDOW


def make(family="bart"):
    return make_lm(family, memory="compressive", history=3, pooled=4)


def test_the_key_and_value_projections_are_trained_through_the_memory():
    lm = make()
    cache = lm.compress(torch.tensor([segments(1)[0]]))
    sum(layer.keys.sum() + layer.values.sum() for layer in cache.layers).backward()
    for layer in lm.adapter.decoder.layers:
        for projection in (layer.self_attn.k_proj, layer.self_attn.v_proj):
            assert projection.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("family", [family for family in DECODERS if not family.startswith("t5")])
def test_a_segment_has_the_same_positions_with_and_without_a_memory(family):
    lm = make(family)
    past, current = ids_of()[: 3 * SIZE], segments(4)[3]
    table = lm.adapter.decoder.embed_positions
    seen = []
    table.register_forward_pre_hook(
        lambda _, __, kwargs: seen.append(kwargs["position_ids"].tolist()), with_kwargs=True
    )
    with torch.no_grad():
        lm(torch.tensor([current]))
        lm(torch.tensor([current]), context=torch.tensor([past]))
    alone, _, after = seen
    assert after == alone == list(range(SIZE))


def test_no_position_beyond_a_segment_is_read_in_scoring_or_generation():
    lm = make()
    table = lm.adapter.decoder.embed_positions.weight
    with torch.no_grad():
        table[len(table) - WINDOW + SIZE + 1 :] = math.nan
    stream = lm.open(ids_of()[: 3 * SIZE])
    assert stream.size == 3 * SIZE // 4
    assert all(map(math.isfinite, stream.score(segments(4)[3])))
    assert lm.open(ids_of()[: 3 * SIZE]).generate(SIZE, num_beams=2)


def test_any_history_fits_since_a_memory_takes_no_positions():
    lm = make()
    ids = ids_of()[: 5 * SIZE]
    assert lm.open(ids * 5, history=20).size == 20 * SIZE // 4
