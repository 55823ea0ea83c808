"""The decoder as a decoder-only model, so that transformers' own `generate` continues a segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    GenerationConfig,
    GenerationMixin,
    LogitsProcessor,
    LogitsProcessorList,
    NoRepeatNGramLogitsProcessor,
    PreTrainedModel,
    RepetitionPenaltyLogitsProcessor,
)
from transformers.modeling_outputs import CausalLMOutputWithPast

from textnuggets.config import check_count
from textnuggets.errors import ConfigError
from textnuggets.lm.memory import History

if TYPE_CHECKING:
    from textnuggets.lm.modeling import NuggetLM

# Those that look at what was written, which a segment alone does not tell.
REPETITION: dict[str, Callable[[Any], LogitsProcessor]] = {
    "repetition_penalty": RepetitionPenaltyLogitsProcessor,
    "no_repeat_ngram_size": NoRepeatNGramLogitsProcessor,
}
OPTIONS = (
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "num_beams",
    "bad_words_ids",
    *REPETITION,
)


class Continuation(PreTrainedModel, GenerationMixin):
    """A view of a NuggetLM that `generate` can use; it owns no parameters of its own."""

    main_input_name = "input_ids"
    _is_stateful = False
    _supports_sdpa = True

    def __init__(self, lm: NuggetLM) -> None:
        config = deepcopy(lm.adapter.config)
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
        states = self.lm.adapter.decode(memory, memory_bias, input_ids, past_key_values)
        return CausalLMOutputWithPast(logits=self.lm.adapter.project(states), past_key_values=past_key_values)

    @classmethod
    def can_generate(cls) -> bool:
        """It can."""
        return True


class _OverAll(LogitsProcessor):
    """A processor of transformers' that also looks at what was written before this segment."""

    def __init__(self, inner: LogitsProcessor, earlier: Tensor) -> None:
        self.inner, self.earlier = inner, earlier

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        earlier = self.earlier.expand(len(input_ids), -1)
        found: Tensor = self.inner(torch.cat([earlier, input_ids[:, 1:]], 1), scores)  # but the start token
        return found


def check_options(lm: NuggetLM, options: dict[str, Any]) -> dict[str, Any]:
    """How tokens are to be chosen, in transformers' words; what would end a text early or make several is refused."""
    if unknown := sorted(options.keys() - set(OPTIONS)):
        raise ConfigError(
            f"generate takes no {unknown[0]!r}: it writes one text of max_new_tokens tokens. It takes {', '.join(OPTIONS)}."
        )
    settings: dict[str, Any] = {"do_sample": False, "num_beams": 1, **options}
    check_count("num_beams", settings["num_beams"], at_least=1)
    if settings["do_sample"]:
        settings.setdefault("top_k", 0)  # transformers would draw from the 50 likeliest
    # Nothing ends a text but its length, and what is no text must not be written.
    special = [[token] for token in lm.tokenizer.all_special_ids]
    settings["bad_words_ids"] = [*special, *(options.get("bad_words_ids") or [])]
    return settings


def continue_segment(
    lm: NuggetLM,
    begun: Tensor,
    count: int,
    settings: dict[str, Any],
    earlier: Sequence[int] = (),
    history: History | None = None,
    context: Tensor | None = None,
    streamer: Any = None,
) -> Tensor:
    """`count` tokens more, `(1, count)`, by `generate`.

    Args:
        lm: A language model.
        begun: `(1, m)` the start token and the segment as far as it is written.
        count: How many tokens.
        settings: From `check_options`.
        earlier: What was written before this segment, for penalties of repetition.
        history: The past, if it is nuggets.
        context: `(1, n)` the tokens of the past, for the other memories.
        streamer: Told of every token.
    """
    read: Any = DynamicCache()
    options = {name: value for name, value in settings.items() if name not in REPETITION}
    before = torch.tensor([list(earlier)], dtype=torch.long, device=begun.device)
    options["logits_processor"] = LogitsProcessorList(
        _OverAll(make(settings[name]), before) for name, make in REPETITION.items() if settings.get(name)
    )
    if history is not None:
        options["memory"], options["memory_bias"] = lm.memory_of(history)
    elif context is not None and lm.config.memory == "tokens":
        begun = torch.cat([begun[:, :1], context, begun[:, 1:]], 1)
    elif context is not None:
        read = lm.compress(context)
        read.batch_repeat_interleave(settings["num_beams"])
    model: Any = Continuation(lm)
    cache = EncoderDecoderCache(read, DynamicCache())
    generated: Tensor = model.generate(
        begun, past_key_values=cache, max_new_tokens=count, streamer=streamer, **options
    )
    return generated[:, begun.shape[1] :]
