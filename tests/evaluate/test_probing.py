"""The probability gain of single nuggets."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from tests.tiny import CORPUS, DECODERS, tiny_model, tiny_tokenizer
from textnuggets.analysis import attribution
from textnuggets.analysis.attribution import probability_gain
from textnuggets.errors import BackboneError
from textnuggets.evaluate import probing
from textnuggets.evaluate.probing import evaluate_probing
from textnuggets.evaluate.sample import Sample
from textnuggets.report.figures import draw_gain_around, draw_gain_by_order


def ids(text=CORPUS[0]):
    return tiny_tokenizer()(text, return_tensors="pt").input_ids[0]


def gains(model, text=CORPUS[0], ratio=0.25):
    with torch.no_grad():
        return probability_gain(model, ids(text), ids(text), ratio)


@pytest.mark.parametrize("family", ["bart", "mbart", "marian", "pegasus"])
def test_a_decoder_that_ignores_nuggets_gains_nothing(family):
    model = tiny_model(family)
    for layer in model.backbone.model.decoder.layers:
        layer.encoder_attn.out_proj.weight.data.zero_()
    found, _ = gains(model)
    assert found.abs().max() < 1e-7


@pytest.mark.parametrize("family", DECODERS)
def test_one_nugget_at_a_time_is_what_the_model_sees_when_it_has_only_that(family):
    """Compare the forward pass at a ratio that keeps one nugget with the decoder without cross-attention."""
    model = tiny_model(family)
    for name, weight in model.adapter.decoder.named_parameters():
        if "encoder_attn" in name and name.endswith("bias"):
            weight.data.normal_()  # a vector of zeros would then have an effect, too
    source = ids()
    found, positions = gains(model, ratio=1 / len(source))
    assert found.shape == (1, len(source))
    with torch.no_grad():
        logits = model(source[None], labels=source[None], ratio=1 / len(source)).logits[0]
        alone = model.adapter.decoder(input_ids=model.adapter.shift(source[None]), encoder_hidden_states=None)
        baseline = model.adapter.project(alone.last_hidden_state)[0].softmax(-1)
    expected = (logits.softmax(-1) - baseline).gather(-1, source[:, None])[:, 0]
    torch.testing.assert_close(found[0], expected, rtol=0, atol=1e-6)
    assert len(positions) == 1


def test_many_nuggets_in_one_pass_are_the_same_as_one_by_one(copier, monkeypatch):
    together, positions = gains(copier)
    monkeypatch.setattr(attribution, "ROWS", 1)
    alone, _ = gains(copier)
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)
    assert (positions.diff() > 0).all()
    with torch.no_grad():
        second, place = probability_gain(copier, ids(), ids(), 0.25, alone=1)
    torch.testing.assert_close(second, together[1:2], rtol=0, atol=1e-6)
    assert place.tolist() == positions[1:2].tolist()


def test_sums_are_kept_by_order_by_index_and_by_distance():
    by_order, places = np.zeros((2, probing.SHOWN, 4)), np.zeros((probing.SHOWN, 4), dtype=int)
    around = np.zeros((2, 2 * probing.REACH + 1))
    probing._add(np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]), np.array([0, 2]), by_order, places, around)
    assert by_order[0, 0].tolist() == [0.1, 0.2, 0.3, 0]
    assert by_order[1, 1].tolist() == [1, 1, 1, 0]
    assert places[0].tolist() == [1, 0, 0, 0]
    assert places[1].tolist() == [0, 0, 1, 0]
    centre = probing.REACH
    assert around[0, centre] == pytest.approx(0.1 + 0.6)
    assert around[0, centre - 2 : centre].tolist() == [0.4, 0.5]
    assert around[1, centre + 1 : centre + 3].tolist() == [1, 1]
    assert probing._means(around)[0] is None


def test_the_two_sides_of_a_nugget_have_standard_errors_over_documents():
    around = np.zeros((2, 2 * probing.REACH + 1))
    around[:, probing.REACH - 2 : probing.REACH + 3] = [[3, 1, 9, 4, 0], [2, 2, 9, 2, 1]]
    assert probing._by_side(around, 2).tolist() == [[4, 4], [4, 3]]
    # With equal counts it is the standard error of the mean.
    rng = np.random.default_rng(0)
    gains = rng.normal([0.2, 0.1], 0.05, size=(200, 2))
    counts = np.full((200, 2), 7.0)
    sides = probing.Sides.of(np.stack([gains * counts, counts], axis=1))
    errors = gains.std(0, ddof=1) / np.sqrt(200)
    assert [sides.before, sides.after] == pytest.approx(gains.mean(0).tolist())
    assert [sides.before_error, sides.after_error] == pytest.approx(errors.tolist())
    excess = gains[:, 0] - 2 * gains[:, 1]
    low, high = sides.excess(2)
    assert (low + high) / 2 == pytest.approx(excess.mean())
    assert (high - low) / 2 == pytest.approx(1.96 * excess.std(ddof=1) / np.sqrt(200), rel=1e-3)
    assert "±" in str(sides)
    one = probing.Sides.of(np.array([[[4.0, 3.0], [4.0, 3.0]]]))
    assert one == probing.Sides(1.0, 1.0)
    assert one.excess(2) == (-1.0, -1.0)


def test_gains_are_averaged_over_documents_and_drawn(copier, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(CORPUS) + "\n")
    found = evaluate_probing(copier, Sample([str(texts)], 5, cache=str(tmp_path / "cache")), lengths=[32, 48])
    assert [part["max_tokens"] for part in found["results"]] == [32, 48]
    part = found["results"][1]
    assert part["documents"] >= 1
    first = part["by_order"][0]
    assert max(abs(gain) for gain in first["gain"] if gain is not None) > 0.01  # it makes a difference
    assert sum(first["positions"]) == first["documents"] == part["documents"]
    assert found["results"][0]["sides"]["before_error"] > 0
    assert [item["nugget"] for item in part["by_order"]] == list(range(1, len(part["by_order"]) + 1))
    assert "r = 0.5" in probing.to_markdown(found)
    assert len(draw_gain_by_order(part).axes) == 6  # three nuggets, each with where it stands
    assert len(draw_gain_around(found).axes[0].lines) == 2 + 2  # a curve for each length, and the axes' zeros


def test_an_encoder_alone_cannot_be_probed(tmp_path):
    with pytest.raises(BackboneError, match="no decoder to probe"):
        evaluate_probing(tiny_model("bert"), Sample(["none"], cache=str(tmp_path)))


def test_for_a_translation_a_nugget_has_the_same_relative_position_in_the_target(copier, tmp_path):
    pairs = [[text, " ".join(text.split()[: len(text.split()) // 2])] for text in CORPUS]
    bitext = tmp_path / "bitext.jsonl"
    bitext.write_text(
        "".join(json.dumps({"doc": i, "lang": "fr", "pairs": [pair]}) + "\n" for i, pair in enumerate(pairs))
    )
    found = evaluate_probing(
        copier,
        Sample([str(bitext)], 3, ["en", "fr"], cache=str(tmp_path / "cache")),
        lengths=[32],
    )
    assert found["settings"]["languages"] == ["en", "fr"]
    assert found["results"][0]["documents"] >= 1
    for item in found["results"][0]["by_order"]:
        last = max(i for i, gain in enumerate(item["gain"]) if gain is not None)
        assert max(np.flatnonzero(item["positions"])) <= last
