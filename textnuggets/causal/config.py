"""CausalConfig: settings of nuggets in the cache of a decoder-only language model."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

from textnuggets.checks import check_count, check_ratio
from textnuggets.errors import ConfigError

RULES = ("spread", "learned", "even")


class CausalConfig(PreTrainedConfig):
    """Settings of a decoder-only language model with nuggets (`config.json`).

    Args:
        segment: s, the number of tokens per segment. The current and the previous segment are kept whole.
        ratio: r; an older segment keeps the keys and values of ceil(s * r) of its tokens.
        scorer_layer: l, the layer whose hidden states are scored: 1 for those of the lowest layer. The first l layers
            have no trained weights.
        selector: `spread` (the best-scoring token of each of k equal chunks), `learned` (the k best-scoring ones) or
            `even` (the last token of each chunk, without scores).
        rank: Rank of the LoRA weights of the attention layers from l on; 0 for none.
        base: Hub id or folder of the base model, which is not part of the checkpoint.
        base_weights: Fingerprint of the base model.
    """

    model_type = "nugget_causal_lm"

    def __init__(
        self,
        segment: int = 128,
        ratio: float = 0.1,
        scorer_layer: int = 3,
        selector: str = "spread",
        rank: int = 16,
        base: str | None = None,
        base_weights: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.segment = check_count("segment", segment, at_least=2)
        self.ratio = check_ratio(ratio)
        self.scorer_layer = check_count("scorer_layer", scorer_layer, at_least=1)
        if selector not in RULES:
            raise ConfigError(f"selector must be one of {', '.join(RULES)}; got {selector!r}.")
        self.selector = selector
        self.rank = check_count("rank", rank, at_least=0)
        self.base = base
        self.base_weights = base_weights
        super().__init__(**kwargs)
