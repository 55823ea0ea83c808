"""Behaviour of transformers that every supported family relies on."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, ModernBertConfig

from tests.overfit import overfit
from tests.tiny import (
    CONFIGS,
    CORPUS,
    DECODERS,
    FAMILIES,
    LAYERS,
    WINDOW,
    tiny_batch,
    tiny_model,
    tiny_tokenizer,
)
from textnuggets import NuggetConfig, NuggetModel
from textnuggets.errors import BackboneError, ConfigError
from textnuggets.model.backbone import BackboneAdapter
from textnuggets.model.budget import nugget_count
from textnuggets.model.families import T5_WINDOW


def inputs(batch):
    return batch["input_ids"], batch["attention_mask"].bool()


@pytest.mark.parametrize("family", FAMILIES)
def test_layer_l_is_seen_as_transformers_reports_it(family):
    model = tiny_model(family)
    input_ids, mask = inputs(tiny_batch())
    encoder = model.adapter.encoder
    hidden = encoder(input_ids=input_ids, attention_mask=mask.long(), output_hidden_states=True).hidden_states
    for layer in range(LAYERS + 1):
        seen = []
        model.adapter.encode(input_ids, mask, layer, lambda x, seen=seen: seen.append(x) or x)
        torch.testing.assert_close(seen[0], hidden[layer])


@pytest.mark.parametrize("family", FAMILIES)
def test_an_untrained_model_encodes_exactly_as_its_backbone(family):
    model = tiny_model(family)
    input_ids, mask = inputs(tiny_batch())
    bare = model.adapter.encoder(input_ids=input_ids, attention_mask=mask.long()).last_hidden_state
    output = model(input_ids, mask)
    expected = bare.gather(1, output.positions[:, :, None].expand(-1, -1, bare.shape[-1]))
    torch.testing.assert_close(output.nuggets[output.kept], expected[output.kept])


@pytest.mark.parametrize("family", DECODERS)
def test_with_all_tokens_and_no_bias_it_is_the_plain_backbone(family):
    model = tiny_model(family)
    batch = tiny_batch()
    torch.testing.assert_close(
        model(**batch, ratio=1.0, residual="off").logits, model.backbone(**batch).logits, atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "mpnet"])  # mpnet is eager only
def test_eager_equals_sdpa(family):
    batch = tiny_batch()
    if family not in DECODERS:
        del batch["labels"]
    eager, sdpa = (tiny_model(family, attention)(**batch) for attention in ("eager", "sdpa"))
    torch.testing.assert_close(eager.nuggets, sdpa.nuggets, atol=1e-5, rtol=1e-4)
    if family in DECODERS:
        torch.testing.assert_close(eager.logits, sdpa.logits, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_embeddings_and_the_bottom_layers_stay_frozen(family):
    model = tiny_model(family, scorer_layer=2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    batch = tiny_batch()
    if family in DECODERS:
        model(**batch).loss.backward()
    else:
        model(*inputs(batch)).nuggets.square().sum().backward()
    optimizer.step()
    frozen = {id(p) for m in model.adapter.below(2) for p in m.parameters()}
    moved = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert {n for n, p in model.named_parameters() if id(p) in frozen}.isdisjoint(moved)
    for index, layer in enumerate(model.adapter.layers):
        changes = any(
            not torch.equal(p, before[n])
            for n, p in model.named_parameters()
            if any(p is q for q in layer.parameters())
        )
        assert changes == (index >= 2), f"layer {index}"
    embeddings = model.adapter.encoder.get_input_embeddings().weight
    assert not embeddings.requires_grad


@pytest.mark.parametrize("family", ["bart", "t5", "bert"])
def test_freezing_can_be_switched_off(family):
    assert all(p.requires_grad for p in tiny_model(family, freeze=False).parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_scorer_sees_fixed_features_in_training(family):
    model = tiny_model(family).train()
    input_ids, mask = inputs(tiny_batch())
    first, second = (model(input_ids, mask) for _ in range(2))
    assert torch.equal(first.token_scores, second.token_scores)
    assert not torch.equal(first.nuggets, second.nuggets)  # dropout is on above layer l


@pytest.mark.parametrize("family", FAMILIES)
def test_feedback_reaches_the_last_layer_and_can_be_switched_off(family):
    input_ids, mask = inputs(tiny_batch())
    model = tiny_model(family)
    plain = model(input_ids, mask).nuggets
    torch.nn.init.normal_(model.feedback.types.weight)
    assert not torch.allclose(model(input_ids, mask).nuggets, plain)
    assert tiny_model(family, feedback=False).feedback is None


@pytest.mark.parametrize("layer", range(LAYERS + 1))
def test_every_layer_can_be_scored(layer):
    model = tiny_model("bart", scorer_layer=layer, feedback=layer < LAYERS)
    model(**tiny_batch()).loss.backward()
    assert model.scorer.out.weight.grad.abs().sum() > 0


def test_a_layer_that_does_not_exist_is_an_error():
    with pytest.raises(ConfigError, match="encoder has 3 layers: choose 0"):
        tiny_model("bart", scorer_layer=4)
    with pytest.raises(ConfigError, match="no layer is left to give feedback to"):
        tiny_model("bart", scorer_layer=3)


@pytest.mark.parametrize("family", DECODERS)
def test_an_overfitted_pair_of_texts_is_copied_back_by_beam_search(family):
    model = overfit(tiny_model(family, ratio=0.25), CORPUS[:2], steps=300)
    assert model.reconstruct(model.encode(CORPUS[:2]), num_beams=5) == CORPUS[:2]


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_gradient_checkpointing_gives_the_same_gradients(family):
    gradients = []
    for checkpointing in (False, True):
        model = tiny_model(family, freeze=False)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
            if isinstance(getattr(module, "dropout", None), float):
                module.dropout = 0.0
        if checkpointing:
            with pytest.raises(ConfigError, match="use_reentrant=False"):
                model.gradient_checkpointing_enable({"use_reentrant": True})
            model.gradient_checkpointing_enable()
        model.train()
        model(**tiny_batch()).loss.backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    plain, checkpointed = gradients
    assert plain.keys() == checkpointed.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(checkpointed[name], gradient, atol=1e-6, rtol=1e-4)


def test_layerdrop_cannot_skip_the_scored_layer():
    config = CONFIGS["bart"]()
    config.encoder_layerdrop = 1.0
    model = NuggetModel.from_backbone(
        config, NuggetConfig(scorer_layer=1, freeze=False), tiny_tokenizer()
    ).train()
    assert model(**tiny_batch()).loss.isfinite()


def test_another_architecture_is_refused_with_the_supported_ones():
    with pytest.raises(
        BackboneError, match=r"'gpt2' is not supported. Encoder-decoders: bart, mbart, marian"
    ):
        NuggetModel.from_backbone(GPT2Config(n_layer=1, n_embd=8, n_head=1), NuggetConfig(), tiny_tokenizer())


def test_attention_that_cannot_carry_the_bias_is_refused():
    with pytest.raises(BackboneError, match=r"'flash_attention_2' cannot add the scores .*'sdpa' or 'eager'"):
        tiny_model("bart", attention="flash_attention_2")


def test_an_encoder_may_use_any_attention_since_it_carries_no_bias():
    model = tiny_model("bert")
    model.backbone.config._attn_implementation = "flash_attention_2"
    assert BackboneAdapter(model.backbone).encoder is model.backbone


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_as_long_as_the_window_fits(family):
    model = tiny_model(family)
    window = T5_WINDOW if family.startswith("t5") else WINDOW
    assert model.window == window
    mask = torch.ones(1, window, dtype=torch.bool)
    made = model.generate_nuggets(torch.full((1, window), 5), mask, nugget_count(mask.sum(-1), 0.1))
    assert made.nuggets.isfinite().all()


def test_modernbert_encodes_thousands_of_tokens_in_one_window():
    config = CONFIGS["modernbert"]()
    config.max_position_embeddings = ModernBertConfig().max_position_embeddings
    model = NuggetModel.from_backbone(config, NuggetConfig(scorer_layer=1), tiny_tokenizer())
    nuggets = model.encode(" ".join(CORPUS * 12))
    assert model.window == 8192
    assert len(nuggets.windows) == 1
    assert nuggets.token_count > 1500
