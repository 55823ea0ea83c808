"""NuggetLMConfig: settings of a language model on top of a nugget model."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

from textnuggets.checks import check_count
from textnuggets.config import NuggetConfig, ShippedConfig
from textnuggets.errors import ConfigError

Memory = Literal["nuggets", "tokens", "compressive"]


class NuggetLMConfig(ShippedConfig):
    """Settings of a language model (`config.json`).

    Args:
        nugget: Settings of the nugget model whose encoder compresses the history and whose decoder predicts.
        segment: s, the number of tokens per segment.
        history: h, the number of past segments to read; the default of every call.
        memory: Representation of past segments: `nuggets` (as in the paper; TSDAE with the selector `mean`),
            `tokens` read by self-attention (a transformer with a longer context), or `compressive`: the mean of
            every `pooled` hidden states of each layer, read by self-attention.
        pooled: Number of positions that the compressive memory pools into one.
        base: Name of the nugget model that provides all weights not stored in this checkpoint.
        base_weights: Fingerprint of `base`.
    """

    model_type = "nugget_lm"
    inner = "nugget"
    sub_configs: ClassVar[dict[str, Any]] = {"nugget": NuggetConfig}  # lets attn_implementation reach it

    def __init__(
        self,
        nugget: NuggetConfig | dict[str, Any] | None = None,
        segment: int = 128,
        history: int = 8,
        memory: Memory = "nuggets",
        pooled: int = 16,
        base: str | None = None,
        base_weights: str | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(nugget, dict):
            nugget = NuggetConfig(**nugget)
        if not isinstance(nugget, NuggetConfig | None):
            raise ConfigError(f"nugget must be the settings of a nugget model, got {nugget!r}.")
        self.nugget = nugget
        self.segment = check_count("segment", segment, at_least=2)
        self.history = check_count("history", history, at_least=0)
        if not isinstance(memory, str) or memory not in get_args(Memory):
            raise ConfigError(f"memory must be one of {', '.join(get_args(Memory))}; got {memory!r}.")
        self.memory = memory
        self.pooled = check_count("pooled", pooled, at_least=1)
        self.base, self.base_weights = base, base_weights
        if memory == "compressive" and self.segment % self.pooled:
            raise ConfigError(
                f"a segment of {segment} tokens cannot be pooled by {pooled}: choose a divisor of {segment}."
            )
        super().__init__(**kwargs)
