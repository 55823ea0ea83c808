"""Generation: present the decoder as a decoder-only model, so that transformers' `generate` continues a segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

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

from textnuggets.checks import check_count
from textnuggets.errors import ConfigError
from textnuggets.lm.decoder import SegmentDecoder
from textnuggets.lm.memory import History

# Options against repetition must also see the tokens of earlier segments.
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
    """Wrapper of a language model that `generate` can use; it has no parameters of its own."""

    main_input_name = "input_ids"
    _is_stateful = False
    _supports_sdpa = True

    def __init__(self, lm: SegmentDecoder) -> None:
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
        unplaced: int = 0,
        **_: Any,
    ) -> CausalLMOutputWithPast:
        """Return the logits of the next token; the cache holds all earlier keys and values, also of cross-attention."""
        states = self.lm.adapter.decode(memory, memory_bias, input_ids, past_key_values, unplaced)
        return CausalLMOutputWithPast(logits=self.lm.adapter.project(states), past_key_values=past_key_values)

    @classmethod
    def can_generate(cls) -> bool:
        """Return True; transformers asks before it generates."""
        return True


class _WithEarlierTokens(LogitsProcessor):
    """Logits processor that also sees the tokens before this segment."""

    def __init__(self, inner: LogitsProcessor, earlier: Tensor) -> None:
        self.inner, self.earlier = inner, earlier

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        earlier = self.earlier.expand(len(input_ids), -1)
        processed: Tensor = self.inner(torch.cat([earlier, input_ids[:, 1:]], 1), scores)  # no start token
        return processed


def check_options(lm: SegmentDecoder, options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings for transformers' `generate`; raise ConfigError for options that are not supported.

    Options that would end a text early or return several texts are not.
    """
    if unknown := sorted(options.keys() - set(OPTIONS)):
        raise ConfigError(f"generate does not support {unknown[0]!r}; use {', '.join(OPTIONS)}.")
    settings: dict[str, Any] = {"do_sample": False, "num_beams": 1, **options}
    check_count("num_beams", settings["num_beams"], at_least=1)
    if settings["do_sample"]:
        settings.setdefault("top_k", 0)  # the default of transformers is 50
    # A text ends only when it reaches its length, so special tokens are never generated.
    special = [[token] for token in lm.tokenizer.all_special_ids]
    settings["bad_words_ids"] = [*special, *(options.get("bad_words_ids") or [])]
    return settings


def continue_segment(
    lm: SegmentDecoder,
    prompt: Tensor,
    count: int,
    settings: dict[str, Any],
    earlier: Sequence[int] = (),
    history: History | None = None,
    context: Tensor | None = None,
    streamer: Any = None,
) -> Tensor:
    """Generate the next `count` tokens of a segment, `(1, count)`.

    Args:
        lm: The language model.
        prompt: `(1, m)` the start token and the tokens of the segment so far.
        count: Number of tokens to generate.
        settings: Return value of `check_options`.
        earlier: Tokens before this segment, for the options against repetition.
        history: Past segments as nuggets, for the memory `nuggets`.
        context: `(1, n)` tokens of past segments, for the other memories.
        streamer: Receives every token, as in transformers.
    """
    read: Any = DynamicCache()
    options = {name: value for name, value in settings.items() if name not in REPETITION}
    before = torch.tensor([list(earlier)], dtype=torch.long, device=prompt.device)
    options["logits_processor"] = LogitsProcessorList(
        _WithEarlierTokens(make(settings[name]), before)
        for name, make in REPETITION.items()
        if settings.get(name)
    )
    if history is not None:
        options["memory"], options["memory_bias"] = lm.memory_of(history)
    elif context is not None and lm.config.memory == "tokens":
        prompt = torch.cat([prompt[:, :1], context, prompt[:, 1:]], 1)
    elif context is not None:
        read = lm.compress(context)
        options["unplaced"] = read.get_seq_length()
        read.batch_repeat_interleave(settings["num_beams"])
    model: Any = Continuation(lm)
    cache = EncoderDecoderCache(read, DynamicCache())
    generated: Tensor = model.generate(
        prompt, past_key_values=cache, max_new_tokens=count, streamer=streamer, **options
    )
    return generated[:, prompt.shape[1] :]
