"""The decoder as a decoder-only model, so that transformers' own `generate` continues a segment."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache, GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

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
    lm: NuggetLM, begun: Tensor, memory: tuple[Tensor, Tensor] | None, count: int, **options: Any
) -> Tensor:
    """`(1, m)` decoder input -> the same with up to `count` tokens more, by `generate`."""
    settings: dict[str, Any] = {
        "past_key_values": EncoderDecoderCache(DynamicCache(), DynamicCache()),
        "max_new_tokens": count,
        "do_sample": False,
        **options,
    }
    if memory is not None:
        settings |= {"memory": memory[0], "memory_bias": memory[1]}
    model: Any = Continuation(lm)
    generated: Tensor = model.generate(begun, **settings)
    return generated
