"""Every token's own vector: what nuggets stand in for, and are measured against."""

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
    """A model that keeps the last layer's vector of every token: a bare backbone's, or a nugget model's.

    A nugget model is not told that every token was picked: it never saw such a text.
    """
    name = find_shipped(name) or name
    with explain_loading(str(name)):
        found, _ = PreTrainedConfig.get_config_dict(str(name))
    if found.get("model_type") != NuggetConfig.model_type:
        settings = NuggetConfig(selector="all_tokens", scorer_layer=0, feedback=False, residual="off")
        return NuggetModel.from_backbone(name, settings).to(best_device())  # type: ignore[arg-type]
    model = load_nugget_model(name)
    model.config.selector, model.config.feedback, model.config.gather = "all_tokens", False, "token"
    model.selector, model.feedback, model.scorer = get_selector("all_tokens"), None, None
    model.gather.mode, model.gather.attention = "token", None
    return model.eval()
