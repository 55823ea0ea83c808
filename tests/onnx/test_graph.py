"""The form of a model that is exported computes what the model computes."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch

from tests.tiny import CORPUS, tiny_model
from textnuggets.checks import GatherMode
from textnuggets.errors import ConfigError
from textnuggets.model.padding import pad_rows
from textnuggets.onnx.graph import SELECTORS, NuggetGraph

TEXTS = [*CORPUS, "", "cat", CORPUS[0] * 2]


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("gather", get_args(GatherMode))
def test_every_selector_and_gather_mode_gives_the_same_nuggets(selector, gather):
    model = tiny_model("bert", selector=selector, gather=gather)
    if gather == "attention":
        torch.nn.init.normal_(model.gather.attention.weight)
    torch.nn.init.normal_(model.feedback.types.weight)  # zero at first, where a wrong mark has no effect
    ids, mask = pad_rows(model.tokenizer(TEXTS).input_ids, model.pad_id)
    lengths = mask.sum(1)
    for share in (0.1, 0.4, 1.0):
        counts = np.ceil(lengths * share).astype(int)
        expected = model.compute(ids, mask, counts.tolist())
        given = (ids, lengths, counts, np.arange(counts.max()))
        with torch.inference_mode():
            vectors, positions, scores = NuggetGraph(model)(*map(torch.from_numpy, given))
        assert expected.kept == counts.tolist()
        np.testing.assert_allclose(scores.numpy() * mask, expected.token_scores * mask, atol=1e-6)
        for row, k in enumerate(counts):
            assert positions[row, :k].tolist() == expected.positions[row, :k].tolist()
            np.testing.assert_allclose(vectors[row, :k], expected.vectors[row, :k], atol=1e-5)
        assert not vectors.numpy()[np.arange(counts.max()) >= counts[:, None]].any()


def test_equal_scores_go_to_the_earlier_token():
    for selector in ("learned", "spread"):
        model = tiny_model("bert", selector=selector)
        torch.nn.init.zeros_(model.scorer.out.weight)
        ids, mask = pad_rows(model.tokenizer([CORPUS[0]]).input_ids, model.pad_id)
        given = (ids, mask.sum(1), np.array([4]), np.arange(4))
        with torch.inference_mode():
            _, positions, _ = NuggetGraph(model)(*map(torch.from_numpy, given))
        assert positions.tolist() == model.compute(ids, mask, [4]).positions.tolist()


def test_a_selector_that_needs_more_than_tokens_is_refused():
    with pytest.raises(
        ConfigError, match="'sentence_boundary' cannot be exported to ONNX: only learned, spread"
    ):
        NuggetGraph(tiny_model("bert", selector="sentence_boundary"))
