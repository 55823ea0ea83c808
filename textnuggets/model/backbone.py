"""Adapter for transformers models; with `families`, the only module that depends on their structure.

It relies on public behaviour only:

- `model.get_encoder()` returns the encoder of an encoder-decoder model, and its layers are in one
  `nn.ModuleList`, whose name `families` lists.
- A layer takes the hidden states as its first argument (or as `hidden_states=`), so a PyTorch
  forward pre-hook on layer l receives X^(l) and can replace it. No attention code is patched.
- A float `attention_mask` of four dimensions is added unchanged to the scaled
  cross-attention logits (documented for custom masks), in both `eager` and `sdpa` attention.
- `attn_implementation="eager" | "sdpa"` selects one of them, and the configuration records it.
- `generate(encoder_outputs=..., inputs_embeds=...)` decodes from given encoder states.
- A decoder with absolute positions has a module `embed_positions`, called with `position_ids=`.

`tests/model/test_backbone.py` tests each of these for every family.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AutoModel,
    AutoModelForSeq2SeqLM,
    DynamicCache,
    GenerationConfig,
    PreTrainedConfig,
    StoppingCriteriaList,
)
from transformers.modeling_outputs import BaseModelOutput

from textnuggets.errors import BackboneError, ConfigError
from textnuggets.model.families import Family, find_family
from textnuggets.model.stopping import CheckCancelled

BIAS_CARRIERS = ("eager", "sdpa")  # attention implementations that add a float mask to the logits
# Backbones trained for summarization set these for `generate`; an exact reconstruction needs them off.
FAITHFUL: dict[str, Any] = {
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0,
    "length_penalty": 1.0,
    "min_length": 0,
    "min_new_tokens": None,
}


def check_attention(family: Family, attention: str | None) -> None:
    """Raise BackboneError if an attention implementation cannot add the bias; None is transformers' default."""
    if family.decodes and attention not in (*BIAS_CARRIERS, None):
        raise BackboneError(
            f"attention {attention!r} cannot add the scores to cross-attention. "
            f"Load the model with attn_implementation='sdpa' or 'eager'."
        )


def build_backbone(config: PreTrainedConfig, **options: Any) -> Any:
    """Build a backbone with random weights."""
    family = find_family(config)
    check_attention(family, options.get("attn_implementation"))
    auto = AutoModelForSeq2SeqLM if family.decodes else AutoModel
    return auto.from_config(config, **dict(family.options), **options)


def load_backbone(name: str, config: PreTrainedConfig, **options: Any) -> Any:
    """Load a pretrained backbone from a folder or hub id, from safetensors only and without remote code."""
    family = find_family(config)
    check_attention(family, options.get("attn_implementation"))
    if options.pop("trust_remote_code", False):
        raise ConfigError("trust_remote_code is not supported: code of a model folder is never run.")
    auto = AutoModelForSeq2SeqLM if family.decodes else AutoModel
    model = auto.from_pretrained(
        name,
        config=config,
        use_safetensors=True,
        trust_remote_code=False,
        **dict(family.options),
        **options,
    )
    if family.decodes:
        # Saving validates it too, which would be after the training.
        model.generation_config.validate(strict=True)
    return model


class BackboneAdapter:
    """Adapter that gives access to the encoder layers and the decoder of a transformers model.

    It owns no parameters; the model remains a submodule of `NuggetModel`.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.config: PreTrainedConfig = model.config
        self.family = find_family(self.config)
        check_attention(self.family, self.config._attn_implementation)
        self.encoder: nn.Module = model.get_encoder() if self.family.decodes else model
        layers = self.encoder.get_submodule(self.family.layers)
        assert isinstance(layers, nn.ModuleList)
        self.layers = layers
        for index, layer in enumerate(layers):
            if not getattr(layer, "watched_by_nuggets", False):
                layer.register_forward_pre_hook(partial(_hook, index), with_kwargs=True)
                layer.watched_by_nuggets = True  # type: ignore[assignment]
        # T5 has relative positions, and no such module.
        positions = getattr(self.decoder, "embed_positions", None) if self.family.decodes else None
        if positions is not None and not getattr(positions, "watched_by_nuggets", False):
            positions.register_forward_pre_hook(_move_positions, with_kwargs=True)
            positions.watched_by_nuggets = True
        self._lift_length_limit()
        # LayerDrop would randomly skip layer l, and with it the scorer.
        if getattr(self.encoder, "layerdrop", 0):
            self.encoder.layerdrop = 0.0

    @property
    def hidden_size(self) -> int:
        """d, the width of the encoder's hidden states."""
        return int(self.config.hidden_size)

    @property
    def residual_scale(self) -> float:
        """1 / sqrt(d) of Eq. 5, where d is the width of one attention head."""
        if not self.family.scales_attention:
            return 1.0
        return float((self.config.d_model // self.config.decoder_attention_heads) ** -0.5)

    @property
    def decoder(self) -> nn.Module:
        """The decoder; its embeddings may be the encoder's."""
        decoder: nn.Module = self.model.get_decoder()
        return decoder

    @property
    def start_token(self) -> int:
        """Id of the decoder's start token."""
        # mBART has none: it starts with a language code, or with the end-of-text token.
        start = self.config.decoder_start_token_id
        return int(self.config.eos_token_id if start is None else start)

    def check_layer(self, layer: int, feedback: bool) -> None:
        """Raise ConfigError if layer l does not exist, or has no layer above it to receive feedback."""
        depth = len(self.layers)
        if layer > depth:
            raise ConfigError(
                f"scorer_layer is {layer}, but this {self.config.model_type} encoder has "
                f"{depth} layers: choose 0 (the embeddings) to {depth}."
            )
        if feedback and layer == depth:
            raise ConfigError(
                f"scorer_layer {layer} is the last layer, so no layer is left to give feedback to: "
                f"set feedback=False or scorer_layer below {depth}."
            )

    def below(self, layer: int) -> list[nn.Module]:
        """Return the embeddings and the bottom l layers: all encoder modules below layer l + 1."""
        above = {id(module) for module in self._above(layer)}

        def collect(module: nn.Module) -> list[nn.Module]:
            if id(module) in above:
                return []
            children = list(module.children())
            if not any(id(m) in above for m in module.modules()):
                return [module]
            return [part for child in children for part in collect(child)]

        return collect(self.encoder)

    def fixed_tables(self) -> list[nn.Module]:
        """Return the sinusoidal position tables.

        Loading marks them as trainable although they get no gradient, for which distributed training would wait.
        """
        return [m for m in self.model.modules() if "Sinusoidal" in type(m).__name__]

    def _above(self, layer: int) -> list[nn.Module]:
        after = [self.encoder.get_submodule(name) for name in self.family.above]
        return [*self.layers[layer:], *after]

    def set_training_above(self, layer: int, mode: bool) -> None:
        """Set the training mode of modules above layer l; those below stay in evaluation mode, without dropout."""
        self.encoder.eval()
        for module in self._above(layer):
            module.train(mode)

    def set_dropout(self, share: float) -> None:
        """Set the dropout probability of every module of the backbone."""
        for module in self.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = share
            for name in ("dropout", "activation_dropout", "attention_dropout"):
                if isinstance(getattr(module, name, None), float):
                    setattr(module, name, share)

    def encode(
        self, input_ids: Tensor, mask: Tensor, layer: int, visit: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Run the encoder, calling `visit` on X^(l) and passing its result to layer l + 1.

        Args:
            input_ids: `(batch, n)`.
            mask: `(batch, n)` True on real tokens.
            layer: Layer l, from 0 to the number of layers L; at L the result of `visit` is ignored.
            visit: Function from X^(l) `(batch, n, d)` to its replacement.

        Returns:
            X, the last layer's hidden states `(batch, n, d)`.
        """
        if layer == len(self.layers):
            hidden_states: Tensor = self._run_encoder(input_ids, mask)
            visit(hidden_states)
            return hidden_states
        # Gradient checkpointing would recompute layer l and so call `visit` twice.
        self.layers[layer].gradient_checkpointing = False  # type: ignore[assignment]
        token = _VISITOR.set((layer, visit))
        try:
            return self._run_encoder(input_ids, mask)
        finally:
            _VISITOR.reset(token)

    def _run_encoder(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        output: Tensor = self.encoder(
            input_ids=input_ids, attention_mask=mask.long(), return_dict=True
        ).last_hidden_state
        return output

    def shift(self, labels: Tensor) -> Tensor:
        """Return the decoder inputs for `labels`: the start token, then the labels shifted right by one."""
        shifted: Tensor = self.model.prepare_decoder_input_ids_from_labels(labels=labels)
        return shifted

    def decode(
        self,
        nuggets: Tensor | None,
        bias: Tensor | None,
        decoder_input_ids: Tensor,
        cache: Any = None,
        unplaced: int = 0,
    ) -> Tensor:
        """Return the decoder's last hidden states `(batch, targets, d)` for `(batch, targets)` input ids.

        Without nuggets there is no cross-attention. `cache` holds the keys and values of earlier tokens, of which the
        first `unplaced` take up no positions.
        """
        token = _UNPLACED.set(unplaced)
        try:
            states: Tensor = self.model.get_decoder()(
                input_ids=decoder_input_ids,
                encoder_hidden_states=nuggets,
                encoder_attention_mask=bias,
                past_key_values=cache,
                use_cache=cache is not None,
            ).last_hidden_state
        finally:
            _UNPLACED.reset(token)
        return states

    def keys_and_values(self, decoder_input_ids: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Return the self-attention keys and values of every decoder layer, each `(batch, heads, n, head_dim)`."""
        cache = DynamicCache()
        self.decode(None, None, decoder_input_ids, cache)
        layers: list[Any] = cache.layers
        return [(layer.keys, layer.values) for layer in layers]

    def project(self, states: Tensor, classes: Tensor | None = None) -> Tensor:
        """Return the logits of decoder states over the whole vocabulary, or over the ids `classes`."""
        if getattr(self.config, "scale_decoder_outputs", False):  # T5, where the embeddings are tied
            states = states * self.config.d_model**-0.5
        head, bias = self.model.get_output_embeddings(), getattr(self.model, "final_logits_bias", None)
        if classes is None:
            logits: Tensor = head(states)
            return logits if bias is None else logits + bias
        logits = functional.linear(states, head.weight[classes])
        return logits if bias is None else logits + bias[:, classes]

    def save_generation_config(self, folder: Path) -> None:
        """Write the generation configuration: start token, target language, ..."""
        if self.family.decodes:
            self.model.generation_config.save_pretrained(folder)

    def load_generation_config(self, name: str, **hub: Any) -> None:
        """Read the generation configuration of a folder or hub id; every saved model with a decoder has one."""
        if self.family.decodes:
            self.model.generation_config = GenerationConfig.from_pretrained(name, **hub)
            self._lift_length_limit()

    def _lift_length_limit(self) -> None:
        """Remove the default length limit, since callers set one and transformers warns about two."""
        if self.family.decodes:
            self.model.generation_config.max_length = None

    def generate(self, nuggets: Tensor, bias: Tensor, **options: Any) -> Tensor:
        """Decode with transformers' `generate`; `options` must limit the length."""
        settings = deepcopy(self.model.generation_config)
        rest = settings.update(**{**FAITHFUL, **options})
        criteria = [*rest.pop("stopping_criteria", ()), CheckCancelled()]
        generated: Tensor = self.model.generate(
            # `generate` rejects a 4-D mask unless embeddings are given too; it does not encode them.
            inputs_embeds=nuggets,
            encoder_outputs=BaseModelOutput(last_hidden_state=nuggets),  # type: ignore[arg-type]
            attention_mask=bias,
            generation_config=settings,
            stopping_criteria=StoppingCriteriaList(criteria),
            **rest,
        )
        return generated


# The layer and the function that visits its input, per thread: several threads may share a model.
_VISITOR: ContextVar[tuple[int, Callable[[Tensor], Tensor]] | None] = ContextVar("visitor", default=None)
# Number of cached keys before the first position of the decoder.
_UNPLACED: ContextVar[int] = ContextVar("unplaced", default=0)


def _move_positions(
    _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Subtract the cached keys without a position from the positions of the decoder's input."""
    unplaced = _UNPLACED.get()
    return (args, {**kwargs, "position_ids": kwargs["position_ids"] - unplaced}) if unplaced else None


def _hook(
    layer: int, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Pass the input X^(l) of encoder layer l + 1 through the current visitor, if it visits this l."""
    visitor = _VISITOR.get()
    if visitor is None or visitor[0] != layer:
        return None
    visit = visitor[1]
    if args:
        return (visit(args[0]), *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": visit(kwargs["hidden_states"])}
