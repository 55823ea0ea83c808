"""Word probabilities of reconstructed texts."""

from __future__ import annotations

import math

import pytest
import torch

from tests.tiny import CORPUS, DECODERS, tiny_model
from textnuggets.model import Reconstruction
from textnuggets.model.decoding import residual_bias
from textnuggets.model.reconstruction import join_words


def test_a_word_is_where_it_stands_and_its_probability_in_range(copier):
    text = CORPUS[0].replace(", ", ",\n\n  ")
    for beams in (1, 3):
        (found,) = copier.reconstruct([copier.encode(text)], num_beams=beams, return_probabilities=True)
        assert isinstance(found, Reconstruction)
        assert found.text == text
        assert [text[word.start : word.end] for word in found.words] == text.split()
        assert all(0 < word.probability <= 1 for word in found.words)


@pytest.mark.parametrize("family", [*DECODERS, "trained"])
def test_greedy_probabilities_are_those_of_generate(family, copier):
    model = copier if family == "trained" else tiny_model(family)
    nuggets = model.encode(CORPUS[0])
    found = model.reconstruct(nuggets, num_beams=1, max_new_tokens=20, return_probabilities=True)
    memory, scores = torch.from_numpy(nuggets.vectors)[None], torch.from_numpy(nuggets.scores)[None]
    bias = residual_bias(
        scores, torch.ones_like(scores, dtype=torch.bool), model.config.residual, model.adapter.residual_scale, model.dtype
    )  # fmt: skip
    expected = model.adapter.generate(
        memory, bias, num_beams=1, do_sample=False, max_new_tokens=20, output_scores=True,
        return_dict_in_generate=True,
    )  # fmt: skip
    ids = expected.sequences[0, 1:]
    steps = torch.stack(expected.scores)[:, 0].log_softmax(-1)
    ordinary = ~torch.isin(ids, torch.tensor(model.tokenizer.all_special_ids))
    total = steps.gather(1, ids[:, None])[:, 0][ordinary].sum().item()
    assert math.isclose(
        sum(math.log(word.probability) for word in found.words), total, rel_tol=1e-4, abs_tol=1e-4
    )
    assert [found.text[word.start : word.end] for word in found.words] == found.text.split()


def test_one_gives_one_and_several_a_list(model):
    nuggets = model.encode(CORPUS[:2])
    one = model.reconstruct(nuggets[0], num_beams=1, return_probabilities=True)
    several = model.reconstruct(nuggets, num_beams=1, return_probabilities=True)
    assert isinstance(one, Reconstruction)
    assert [item.text for item in several] == model.reconstruct(nuggets, num_beams=1)


def test_an_empty_text_has_no_words(copier):
    assert copier.reconstruct(copier.encode("\n"), return_probabilities=True) == ("\n", ())


def test_a_word_cut_between_windows_is_one_and_no_probability_is_zero():
    found = join_words("ab c", [(0, 1), (1, 2), (3, 4)], [math.log(0.5), math.log(0.5), -5000.0])
    assert [(word.start, word.end) for word in found.words] == [(0, 2), (3, 4)]
    assert found.words[0].probability == 0.25
    assert 0 < found.words[1].probability < 1e-300
