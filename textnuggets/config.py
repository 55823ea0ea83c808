"""NuggetConfig: everything that turns a backbone into a nugget model, in one flat file of settings."""

from __future__ import annotations

from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, Literal, get_args

from transformers import AutoConfig, PreTrainedConfig

from textnuggets.errors import ConfigError
from textnuggets.shipped import locate

OWN_SETTINGS = (
    "ratio", "query_ratio", "scorer_layer", "selector", "gather", "residual", "feedback", "freeze", "window", "objective",
    "backbone",
)  # fmt: skip
SHORTEST = 16  # tokens of a window
GatherMode = Literal["token", "mean", "attention", "both"]
ResidualMode = Literal["add", "straight_through", "off"]


class NuggetConfig(PreTrainedConfig):
    """Settings of a nugget model (`config.json`).

    Args:
        ratio: Compression ratio r; a text of n tokens becomes ceil(n * r) nuggets. May be
            overridden at every call.
        query_ratio: Compression ratio of queries, which are short and are not stored; None is `ratio`.
        scorer_layer: The encoder layer l whose hidden states are scored, 0 (the embeddings)
            to L (the last layer).
        selector: Who picks the nuggets: `learned` (the paper), `spread` (learned, one in each of k
            equal chunks), `even_content` (the last token of each of k chunks of equal content), `chunking`, `sentence_boundary`, `all_tokens` (ColBART), `mean` for one
            pooled vector (TSDAE), or any function registered in `textnuggets.model.selection`.
        gather: What of the last layer a nugget is made of: the chosen `token` alone (the paper), the
            `mean` over the segment it closes, `attention` over that segment, or `both`, token and
            mean added.
        residual: How scores enter cross-attention: `add` (the paper), `straight_through`
            (gradients only) or `off`.
        feedback: Whether layer l + 1 is told which tokens were picked.
        freeze: Whether the embeddings and the bottom l encoder layers stay fixed in training.
        window: The longest run of tokens encoded at once, special ones included; longer texts
            are cut at sentence ends. None is the backbone's own limit.
        objective: What the weights were trained for, such as `autoencode` or `contrastive`; filled in by training. Vectors
            of an autoencoder are not made to be compared.
        backbone: The backbone's configuration, filled in by `NuggetModel.from_backbone`.
        backbone_name: Hub id or folder the backbone came from, for the model card.
        punctuation_ids: Vocabulary ids of the comma and the period, for the chunking selector;
            filled in from the tokenizer.
    """

    model_type = "nugget"

    def __init__(
        self,
        ratio: float = 0.1,
        query_ratio: float | None = None,
        scorer_layer: int = 3,
        selector: str = "learned",
        gather: GatherMode = "token",
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
        for key in kwargs:  # transformers takes any; what is nearly one of ours is a slip
            if near := get_close_matches(key, OWN_SETTINGS, n=1, cutoff=0.8):
                raise ConfigError(f"unknown setting {key!r}: did you mean {near[0]!r}?")
        self.ratio = check_ratio(ratio)
        self.query_ratio = None if query_ratio is None else check_ratio(query_ratio)
        self.scorer_layer = check_count("scorer_layer", scorer_layer, at_least=0)
        self.selector = selector  # checked against the registry when a model is built
        self.gather: GatherMode = _check_choice("gather", gather, get_args(GatherMode))
        self.residual = check_residual(residual)
        self.feedback = _check_flag("feedback", feedback)
        self.freeze = _check_flag("freeze", freeze)
        self.window = None if window is None else check_count("window", window, at_least=SHORTEST)
        self.objective = objective
        if isinstance(backbone, dict):
            backbone = AutoConfig.for_model(**backbone)
        self.backbone = backbone
        self.backbone_name = backbone_name
        self.punctuation_ids = list(punctuation_ids or [])
        super().__init__(**kwargs)

    def ratio_of_queries(self, ratio: float | None = None) -> float:
        """Return the ratio of queries: `query_ratio` if the model has one, else the documents' `ratio`."""
        if self.query_ratio is not None:
            return self.query_ratio
        return self.ratio if ratio is None else ratio

    @property
    def comparable(self) -> bool:
        """Whether the vectors were trained to be compared, or at least not for something else."""
        return self.objective != "autoencode"

    @classmethod
    def get_config_dict(cls, name: Any, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:  # type: ignore[override]
        """Read `config.json` of a shipped model, a folder or a hub id."""
        return super().get_config_dict(locate(name), **options)

    def to_dict(self) -> dict[str, Any]:
        """As `config.json` has it: without the folder the backbone was loaded from, which means nothing to others."""
        found: dict[str, Any] = super().to_dict()
        if isinstance(found.get("backbone"), dict):
            found["backbone"].pop("_name_or_path", None)
        return found


def check_ratio(ratio: float) -> float:
    """The ratio as a float in (0, 1], or a ConfigError."""
    if isinstance(ratio, bool) or not isinstance(ratio, Real) or not 0 < ratio <= 1:
        raise ConfigError(f"ratio must lie in (0, 1], got {ratio!r}. 0.1 keeps one token in ten.")
    return float(ratio)


def check_count(name: str, value: int, at_least: int) -> int:
    """A whole number of at least `at_least`, numpy's too, or a ConfigError."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise ConfigError(f"{name} must be a whole number of at least {at_least}, got {value!r}.")
    return int(value)


def check_residual(mode: str) -> ResidualMode:
    """One of the three residual modes, or a ConfigError."""
    return _check_choice("residual", mode, get_args(ResidualMode))


def _check_flag(name: str, value: bool) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, got {value!r}.")
    return value


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> Any:
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")
    return value
