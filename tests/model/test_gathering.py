"""Pooling of a nugget from its token or its segment."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.tiny import CORPUS, DECODERS, tiny_model
from textnuggets import NuggetConfig, NuggetModel
from textnuggets.errors import ConfigError
from textnuggets.model.feedback import Feedback
from textnuggets.model.pooling import Gather, gather_selected, mean_pool, segments
from textnuggets.model.selection import Selection, select_topk


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.floats(0.05, 1), st.integers(0, 99))
def test_every_real_token_is_in_one_segment_and_every_nugget_in_its_own(lengths, share, seed):
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    scores = torch.rand(mask.shape, generator=torch.Generator().manual_seed(seed))
    selection = select_topk(scores, mask, (torch.tensor(lengths) * share).ceil().long())
    found = segments(selection, mask)
    assert found.sum(1).equal(mask.long())
    for row, (positions, kept) in enumerate(zip(*selection, strict=True)):
        for slot, position in enumerate(positions[kept]):
            assert found[row, slot, position]
            after = found[row, slot, position + 1 :]
            assert (
                slot == kept.sum() - 1 or not after.any()
            )  # only the last segment has tokens after its nugget
    assert not found[~selection.kept].any()


def test_the_mean_of_a_text_leaves_its_padding_out():
    states = torch.tensor([[[1.0], [3.0], [100.0]], [[2.0], [4.0], [9.0]]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    assert mean_pool(states, mask).flatten().tolist() == [2.0, 5.0]


def test_feedback_adds_one_embedding_to_nuggets_and_another_to_other_tokens():
    feedback = Feedback(2)
    feedback.types.weight.data = torch.tensor([[1.0, -1.0], [10.0, 20.0]])  # other, nugget
    found = feedback(torch.zeros(1, 3, 2), torch.tensor([[False, True, False]]))
    assert found.tolist() == [[[1.0, -1.0], [10.0, 20.0], [1.0, -1.0]]]


STATES = torch.tensor([[[1.0], [2.0], [4.0], [8.0], [16.0]]])
CHOSEN = Selection(torch.tensor([[1, 3]]), torch.tensor([[True, True]]))
MASK = torch.ones(1, 5, dtype=torch.bool)
CONTENT = torch.tensor([[9.0, 1.0, 0.0, 4.0, 16.0]])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token", [2.0, 8.0]),
        ("mean", [1.5, 28 / 3]),
        ("content", [(3 * 1 + 1 * 2) / 4, (2 * 8 + 4 * 16) / 6]),  # by the root of the content
        ("attention", [1.5, 28 / 3]),  # untrained
        ("both", [3.5, 8 + 28 / 3]),
    ],
)
def test_a_nugget_is_its_token_its_segment_or_both(mode, expected):
    gather = Gather(1, mode)
    if gather.attention is not None:
        torch.nn.init.zeros_(gather.attention.weight)
    assert gather(STATES, CHOSEN, MASK, CONTENT)[0, :, 0].tolist() == pytest.approx(expected)


def test_attention_weights_tokens_within_the_segment_only():
    gather = Gather(1, "attention")
    torch.nn.init.constant_(gather.attention.weight, 10.0)
    assert gather(STATES, CHOSEN, MASK, CONTENT)[0, :, 0].tolist() == pytest.approx([2.0, 16.0], rel=1e-3)


@pytest.mark.parametrize("mode", ["mean", "content", "attention", "both"])
@pytest.mark.parametrize("family", ["bert", "bart", "t5"])
def test_models_gather_save_and_decode(mode, family, tmp_path):
    model = tiny_model(family, gather=mode)
    with torch.no_grad():
        for weight in model.gather.parameters():
            weight.normal_()
    nuggets = model.encode(CORPUS, ratio=0.2)
    model.save_pretrained(tmp_path)
    again = NuggetModel.from_pretrained(tmp_path)
    assert again.config.gather == mode
    for before, after in zip(nuggets, again.encode(CORPUS, ratio=0.2), strict=True):
        assert (before.vectors == after.vectors).all()
    if family in DECODERS:
        assert isinstance(model.reconstruct(nuggets[0], num_beams=1, max_new_tokens=5), str)


def test_a_segment_without_content_keeps_its_mean():
    gather = Gather(1, "content")
    assert gather(STATES, CHOSEN, MASK, torch.zeros(1, 5))[0, :, 0].tolist() == pytest.approx([1.5, 28 / 3])


def test_content_is_saved_and_equal_content_is_the_mean(tmp_path):
    model = tiny_model("bert", gather="content")
    mean = tiny_model("bert", gather="mean").encode(CORPUS[0], ratio=0.2).vectors
    assert (
        abs(model.encode(CORPUS[0], ratio=0.2).vectors - mean).max() > 1e-3
    )  # of the tokenizer's probabilities
    model.content.fill_(2.0)
    assert abs(model.encode(CORPUS[0], ratio=0.2).vectors - mean).max() < 1e-6
    model.content.uniform_(0, 9, generator=torch.Generator().manual_seed(0))
    weighted = model.encode(CORPUS[0], ratio=0.2).vectors
    assert abs(weighted - mean).max() > 1e-3
    model.save_pretrained(tmp_path)
    assert (
        abs(NuggetModel.from_pretrained(tmp_path).encode(CORPUS[0], ratio=0.2).vectors - weighted).max()
        < 1e-6
    )


@pytest.mark.parametrize("mode", ["mean", "content"])
def test_padding_changes_no_mean(mode):
    model = tiny_model("bert", gather=mode)
    alone = model.encode(CORPUS[0], ratio=0.2).vectors
    together = model.encode([CORPUS[0], " ".join(CORPUS[:2])], ratio=0.2)[0].vectors
    assert abs(alone - together).max() < 1e-5


def test_the_mean_of_a_single_token_is_the_token():
    text = CORPUS[0]
    token, mean = (
        tiny_model("bert", selector="all_tokens", gather=mode).encode(text).vectors
        for mode in ("token", "mean")
    )
    assert abs(token - mean).max() < 1e-6


def test_unused_slots_stay_zero():
    selection = Selection(torch.tensor([[1, 0]]), torch.tensor([[True, False]]))
    for mode in ("token", "mean", "content", "attention", "both"):
        assert (Gather(1, mode)(STATES, selection, MASK, CONTENT)[0, 1] == 0).all()
    assert (gather_selected(STATES, selection)[0, 1] == 0).all()


def test_an_unknown_way_to_gather_is_named():
    with pytest.raises(ConfigError, match="gather must be one of token, mean, content, attention, both"):
        NuggetConfig(gather="sum")
