"""The decoder as a decoder-only model, so that transformers' own `generate` continues a segment."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache, GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from textnuggets.lm.history import History

if TYPE_CHECKING:
    from textnuggets.lm.modeling import NuggetLM


class Continuation(PreTrainedModel, GenerationMixin):
    """A view of a NuggetLM that `generate` can use; it owns no parameters of its own."""

    main_input_name = "input_ids"
    _is_stateful = False
    _supports_sdpa = True

    def __init__(self, lm: NuggetLM) -> None:
        config = deepcopy(lm.view.config)
        config.is_encoder_decoder = False
        super().__init__(config)
        self.lm = lm
        self.generation_config = GenerationConfig(
            bos_token_id=config.decoder_start_token_id, pad_token_id=lm.pad_id, eos_token_id=None
        )

    def forward(
        self,
        input_ids: Tensor,
        memory: Tensor | None = None,
        memory_bias: Tensor | None = None,
        past_key_values: Any = None,
        **_: Any,
    ) -> CausalLMOutputWithPast:
        """Logits of the next token; what was read before is in the cache, cross-attention's keys included."""
        states = self.lm.view.decode(memory, memory_bias, input_ids, past_key_values)
        return CausalLMOutputWithPast(logits=self.lm.view.project(states), past_key_values=past_key_values)

    @classmethod
    def can_generate(cls) -> bool:
        """It can."""
        return True


def continue_segment(
    lm: NuggetLM,
    begun: Tensor,
    count: int,
    history: History | None = None,
    context: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Up to `count` tokens more, `(1, count)`, by `generate`.

    Args:
        lm: A language model.
        begun: `(1, m)` the start token and the segment as far as it is written.
        count: How many tokens.
        history: The past, if it is nuggets.
        context: `(1, n)` the tokens of the past, for the other memories.
        options: For `generate`.
    """
    read: Any = DynamicCache()
    settings: dict[str, Any] = {"max_new_tokens": count, "do_sample": False, **options}
    if settings["do_sample"]:
        settings.setdefault("top_k", 0)  # transformers would draw from the 50 likeliest
    if history is not None:
        settings["memory"], settings["memory_bias"] = lm.memory_of(history)
    elif context is not None and lm.config.memory == "tokens":
        begun = torch.cat([begun[:, :1], context, begun[:, 1:]], 1)
    elif context is not None:
        read = lm.compress(context)
        read.batch_repeat_interleave(options.get("num_beams", 1))
    model: Any = Continuation(lm)
    cache = EncoderDecoderCache(read, DynamicCache())
    generated: Tensor = model.generate(begun, past_key_values=cache, **settings)
    return generated[:, begun.shape[1] :]
