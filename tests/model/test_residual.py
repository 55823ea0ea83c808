"""Scores in cross-attention (Eq. 5) and their gradient (Eq. 6)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from tests.tiny import DECODERS, tiny_batch, tiny_model
from textnuggets.model.budget import nugget_count
from textnuggets.model.residual import residual_bias


def test_add_is_the_scaled_score_and_padding_the_lowest_value():
    bias = residual_bias(torch.tensor([[2.0, 4.0]]), torch.tensor([[True, False]]), "add", 0.5, torch.float32)
    assert bias.shape == (1, 1, 1, 2)
    assert bias.flatten().tolist() == [1.0, torch.finfo(torch.float32).min]


def test_straight_through_has_the_value_of_off_and_the_gradient_of_add():
    kept = torch.ones(1, 3, dtype=torch.bool)
    gradients, values = {}, {}
    for mode in ("add", "straight_through", "off"):
        scores = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
        bias = residual_bias(scores, kept, mode, 0.5, torch.float32)
        values[mode] = bias.detach().clone()
        if bias.requires_grad:
            (bias * torch.tensor([3.0, 5.0, 7.0])).sum().backward()
        gradients[mode] = scores.grad
    assert torch.equal(values["straight_through"], values["off"])
    assert torch.equal(gradients["straight_through"], gradients["add"])
    assert gradients["off"] is None


@pytest.mark.parametrize(("mode", "learns"), [("add", True), ("straight_through", True), ("off", False)])
@pytest.mark.parametrize("family", DECODERS)
def test_the_scorer_learns_only_through_the_residual(family, mode, learns):
    model = tiny_model(family, residual=mode)
    model(**tiny_batch()).loss.backward()
    gradients = [p.grad for p in model.scorer.parameters()]
    assert all((g is not None and g.abs().sum() > 0) == learns for g in gradients[:-1])


def hand_written_bart(
    decoder, nuggets: Tensor, scores: Tensor, kept: Tensor, decoder_ids: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Compute BART's decoder by hand, with a = (Q K + s) / sqrt(d) in every head and layer."""
    positions = torch.arange(decoder_ids.shape[1]) + decoder.embed_positions.offset
    x = decoder.embed_tokens(decoder_ids) + decoder.embed_positions.weight[positions]
    x = decoder.layernorm_embedding(x)
    targets = x.shape[1]
    future = torch.ones(targets, targets, dtype=torch.bool).triu(1)
    logits = []
    for layer in decoder.layers:
        heads, width = layer.self_attn.num_heads, layer.self_attn.head_dim

        def split(states: Tensor, heads: int = heads, width: int = width) -> Tensor:
            return states.view(len(states), -1, heads, width).transpose(1, 2)

        def attend(attention, a: Tensor, values: Tensor) -> Tensor:
            mixed = a.softmax(-1) @ split(attention.v_proj(values))
            return attention.out_proj(mixed.transpose(1, 2).flatten(2))

        q, k = split(layer.self_attn.q_proj(x)), split(layer.self_attn.k_proj(x))
        a = (q @ k.transpose(-1, -2) / width**0.5).masked_fill(future, -torch.inf)
        x = layer.self_attn_layer_norm(x + attend(layer.self_attn, a, x))
        cross = layer.encoder_attn
        q, k = split(cross.q_proj(x)), split(cross.k_proj(nuggets))
        a = (q @ k.transpose(-1, -2) + scores[:, None, None, :]) / width**0.5
        a = a.masked_fill(~kept[:, None, None, :], -torch.inf)
        if a.requires_grad:
            a.retain_grad()
        logits.append(a)
        x = layer.encoder_attn_layer_norm(x + attend(cross, a, nuggets))
        x = layer.final_layer_norm(x + layer.fc2(F.gelu(layer.fc1(x))))
    return x, logits


def run_by_hand(model, batch):
    mask = batch["attention_mask"].bool()
    made = model.generate_nuggets(batch["input_ids"], mask, nugget_count(mask.sum(-1), model.config.ratio))
    scores = made.scores.detach().requires_grad_()
    start = torch.full_like(batch["labels"][:, :1], model.adapter.config.decoder_start_token_id)
    decoder_ids = torch.cat([start, batch["labels"][:, :-1]], 1).clamp(min=0)
    bart = model.backbone
    x, a = hand_written_bart(
        bart.model.decoder, made.nuggets.detach(), scores, made.selection.kept, decoder_ids
    )
    return bart.lm_head(x) + bart.final_logits_bias, a, scores


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_bart_logits_equal_a_hand_written_cross_attention(attention):
    model = tiny_model("bart", attention)
    torch.nn.init.normal_(model.scorer.out.weight, std=2.0)  # large enough to affect the logits
    batch = tiny_batch()
    by_hand, _, scores = run_by_hand(model, batch)
    assert scores.std() > 0.1
    logits = model(**batch).logits
    real = batch["labels"] != -100
    torch.testing.assert_close(logits[real], by_hand[real], atol=1e-5, rtol=0)
    without = model(**batch, residual="off").logits
    assert (without[real] - by_hand[real]).abs().max() > 1e-3  # without the scores the logits differ


def test_the_gradient_on_s_is_the_scaled_sum_over_targets_heads_and_layers():
    model = tiny_model("bart")
    logits, attention_logits, scores = run_by_hand(model, batch := tiny_batch())
    F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten()).backward()
    head_width = model.adapter.config.d_model // model.adapter.config.decoder_attention_heads
    # (batch, heads, targets, k) summed over heads and targets, then over layers
    summed = sum(a.grad.sum((1, 2)) for a in attention_logits) * head_width**-0.5
    torch.testing.assert_close(scores.grad, summed, atol=1e-7, rtol=1e-4)

    # The model computes the same gradient of its scores.
    seen = {}
    inner = model.scorer.forward
    model.scorer.forward = lambda x: seen.setdefault("s", inner(x).detach().requires_grad_())
    try:
        output = model(**batch)
        output.loss.backward()
    finally:
        del model.scorer.forward
    chosen = seen["s"].grad.gather(1, output.positions) * output.kept
    torch.testing.assert_close(chosen, scores.grad * output.kept, atol=1e-6, rtol=1e-3)


def test_scores_can_be_ablated_at_inference():
    model = tiny_model("bart")
    torch.nn.init.normal_(model.scorer.out.weight, std=5.0)
    batch = tiny_batch()
    assert not torch.allclose(model(**batch).logits, model(**batch, residual="off").logits)
    text = "The cat sat on the mat, and the dog lay by the door."
    nuggets = model.encode([text])
    assert isinstance(model.reconstruct(nuggets, residual="off", num_beams=1)[0], str)
