"""NuggetConfig: the settings that turn a backbone into a nugget model."""

from __future__ import annotations

from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any, ClassVar, get_args

from transformers import AutoConfig, PreTrainedConfig

from textnuggets.checks import (
    GatherMode,
    ResidualMode,
    Settings,
    check_choice,
    check_count,
    check_flag,
    check_kind,
    check_ratio,
    check_residual,
)
from textnuggets.errors import ConfigError
from textnuggets.shipped import locate

SHORTEST = 16  # minimum window, in tokens


class ShippedConfig(PreTrainedConfig):
    """Base class of configurations that can be loaded by the name of a shipped model."""

    inner: ClassVar[str]
    """Name of the setting that holds the configuration of the model inside."""

    @classmethod
    def get_config_dict(cls, name: Any, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:  # type: ignore[override]
        """Read the `config.json` of a shipped model, a folder or a hub id."""
        return super().get_config_dict(locate(name), **options)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings for `config.json`, without the local folder that the inner model was loaded from."""
        settings: dict[str, Any] = super().to_dict()
        if isinstance(settings.get(self.inner), dict):
            settings[self.inner].pop("_name_or_path", None)
        return settings


class NuggetConfig(Settings, ShippedConfig):
    """Settings of a nugget model (`config.json`).

    Args:
        ratio: Compression ratio r: a text of n tokens becomes ceil(n * r) nuggets. Each call can override it.
        query_ratio: Compression ratio of queries, which are short and not stored; `ratio` if None.
        scorer_layer: Encoder layer l whose hidden states are scored, from 0 (the embeddings) to L (the last layer).
        selector: Method that selects the nuggets: `learned` (the paper), `spread` (learned, one in each of k equal
            chunks), `even` (the last token of each of k equal chunks), `even_content` (the last token of each of k chunks of equal content), `chunking`,
            `sentence_boundary`, `all_tokens` (ColBART), `mean` (one pooled vector, as in TSDAE), or any function
            registered in `textnuggets.model.selection`.
        gather: Last-layer hidden states that form a nugget: the selected `token` alone (the paper), the `mean` over
            the segment that ends with it, the mean weighted by `content` (rare tokens count more), `attention` over
            that segment, or `both` (the sum of token and mean).
        dim: Dimensions of a nugget; the backbone's hidden size if None. Training nests them: the first dimensions matter
            most, so that vectors can be cut to fewer (`NuggetModel.truncate`). A model that decodes keeps all.
        residual: How scores enter cross-attention: `add` (the paper), `straight_through` (gradients only) or `off`.
        feedback: Whether layer l + 1 receives an embedding that marks the selected tokens.
        freeze: Whether the embeddings and the bottom l encoder layers are frozen in training.
        window: Maximum number of tokens encoded at once, including special tokens; longer texts are split at sentence
            ends. None is the backbone's limit.
        objective: Training objective, such as `autoencode` or `contrastive`; set by training. The vectors of an
            autoencoder are not meant to be compared.
        backbone: Configuration of the backbone; set by `NuggetModel.from_backbone`.
        backbone_name: Hub id or folder of the backbone, for the model card.
        punctuation_ids: Vocabulary ids of the comma and the period, for the `chunking` selector; set from the
            tokenizer.
    """

    model_type = "nugget"
    inner = "backbone"

    def __init__(
        self,
        ratio: float = 0.1,
        query_ratio: float | None = None,
        scorer_layer: int = 3,
        selector: str = "learned",
        gather: GatherMode = "token",
        dim: int | None = None,
        residual: ResidualMode = "add",
        feedback: bool = True,
        freeze: bool = True,
        window: int | None = None,
        objective: str | None = None,
        backbone: PreTrainedConfig | dict[str, Any] | None = None,
        backbone_name: str | None = None,
        punctuation_ids: list[int] | None = None,
        **kwargs: Any,
    ) -> None:
        for key in kwargs:  # transformers accepts any key, so catch misspelled ones
            if near := get_close_matches(key, DEFAULTS, n=1, cutoff=0.8):
                raise ConfigError(f"unknown setting {key!r}: did you mean {near[0]!r}?")
        self.ratio = check_ratio(ratio)
        self.query_ratio = None if query_ratio is None else check_ratio(query_ratio)
        self.scorer_layer = check_count("scorer_layer", scorer_layer, at_least=0)
        self.selector = check_kind(
            "selector", selector, str, "a string"
        )  # must be registered when a model is built
        self.gather: GatherMode = check_choice("gather", gather, get_args(GatherMode))
        self.dim = None if dim is None else check_count("dim", dim, at_least=1)
        self.residual = check_residual(residual)
        self.feedback = check_flag("feedback", feedback)
        self.freeze = check_flag("freeze", freeze)
        self.window = None if window is None else check_count("window", window, at_least=SHORTEST)
        self.objective = check_kind("objective", objective, str | None, "a string or None")
        if isinstance(backbone, dict):
            backbone = AutoConfig.for_model(**backbone)
        self.backbone = check_kind("backbone", backbone, PreTrainedConfig | None, "a configuration or None")
        self.backbone_name = check_kind("backbone_name", backbone_name, str | None, "a string or None")
        self.punctuation_ids = list(
            check_kind("punctuation_ids", punctuation_ids or [], list | tuple, "a list of ids")
        )
        for item in self.punctuation_ids:
            check_count("punctuation_ids", item, at_least=0)
        super().__init__(**kwargs)


DEFAULTS: dict[str, Any] = {
    name: parameter.default
    for name, parameter in signature(NuggetConfig).parameters.items()
    if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD
}
"""All settings of a nugget model, with their defaults."""
ARCHITECTURE = ("scorer_layer", "selector", "gather", "dim", "residual", "feedback")
"""Settings that determine the modules of a model and how it computes nuggets; training fixes them."""
