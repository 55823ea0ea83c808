"""NuggetLMConfig: what turns a nugget model into a language model."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

from transformers import PreTrainedConfig

from textnuggets.config import NuggetConfig, check_count
from textnuggets.errors import ConfigError
from textnuggets.shipped import locate

Memory = Literal["nuggets", "tokens", "compressive"]


class NuggetLMConfig(PreTrainedConfig):
    """Settings of a language model (`config.json`).

    Args:
        nugget: Those of the nugget model whose encoder compresses history and whose decoder predicts.
        segment: s, the tokens of a segment.
        history: h, how many segments before the current one are read, unless a call says otherwise.
        memory: What is kept of them: `nuggets` (the paper; with the selector `mean` this is TSDAE), the
            `tokens` themselves in self-attention (a transformer with a longer context), or `compressive`:
            the mean of every `pooled` hidden states of each layer, in self-attention.
        pooled: How many positions the compressive memory makes into one.
        base: Name of the nugget model that all weights come from which are not stored here.
        base_weights: The fingerprint of its weights.
    """

    model_type = "nugget_lm"
    sub_configs: ClassVar[dict[str, Any]] = {"nugget": NuggetConfig}  # reached by attn_implementation

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
        self.nugget = nugget
        self.segment = check_count("segment", segment, at_least=2)
        self.history = check_count("history", history, at_least=0)
        if memory not in get_args(Memory):
            raise ConfigError(f"memory must be one of {', '.join(get_args(Memory))}; got {memory!r}.")
        self.memory = memory
        self.pooled = check_count("pooled", pooled, at_least=1)
        self.base, self.base_weights = base, base_weights
        if memory == "compressive" and self.segment % self.pooled:
            raise ConfigError(
                f"a segment of {segment} tokens cannot be pooled by {pooled}: choose a divisor."
            )
        super().__init__(**kwargs)

    @classmethod
    def get_config_dict(cls, name: Any, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:  # type: ignore[override]
        """Read `config.json` of a shipped model, a folder or a hub id."""
        return super().get_config_dict(locate(name), **options)

    def to_dict(self) -> dict[str, Any]:
        """As `config.json` has it: without the folder the nugget model was loaded from, which means nothing to others."""
        found: dict[str, Any] = super().to_dict()
        if isinstance(found.get("nugget"), dict):
            found["nugget"].pop("_name_or_path", None)
        return found
