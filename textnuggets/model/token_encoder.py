"""Models that keep the vector of every token, as a baseline for nuggets."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedConfig

from textnuggets.config import NuggetConfig
from textnuggets.model.checkpoint import best_device, explain_loading
from textnuggets.model.load import load_nugget_model
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.selection import get_selector
from textnuggets.shipped import find_shipped


def load_token_encoder(name: str | Path) -> NuggetModel:
    """Load a backbone or nugget model that keeps the last layer's vector of every token.

    The feedback of a nugget model is removed, because it was not trained with every token selected.
    """
    name = find_shipped(name) or name
    with explain_loading(str(name)):
        settings, _ = PreTrainedConfig.get_config_dict(str(name))
        kind = settings.get("model_type")
    if kind != NuggetConfig.model_type:
        config = NuggetConfig(selector="all_tokens", scorer_layer=0, feedback=False, residual="off")
        return NuggetModel.from_backbone(name, config).to(best_device())  # type: ignore[arg-type]
    model = load_nugget_model(name)
    model.config.selector, model.config.feedback, model.config.gather = "all_tokens", False, "token"
    model.selector, model.feedback, model.scorer = get_selector("all_tokens"), None, None
    model.gather.mode, model.gather.attention = "token", None
    model.weighs_content = False
    return model.eval()
