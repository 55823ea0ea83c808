"""The model that a recipe trains: on a backbone, or from one that was trained before, with what stays fixed fixed."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from difflib import get_close_matches

import torch
from transformers import PreTrainedConfig

from textnuggets.config import SHORTEST, NuggetConfig
from textnuggets.errors import BackboneError, ConfigError
from textnuggets.lm.modeling import NuggetLM, is_language_model
from textnuggets.model.backbone import backbone_window
from textnuggets.model.load import load_nugget_model
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.selection import get_selector
from textnuggets.train.recipe import ModelRecipe, Recipe


def build_model(recipe: Recipe) -> NuggetModel | NuggetLM:
    """The model to train, with what stays fixed fixed."""
    if recipe.objective.name == "language_model":
        return build_language_model(recipe)
    model = build_nugget_model(recipe)
    check_parts(model, recipe)
    return model


def build_language_model(recipe: Recipe) -> NuggetLM:
    """A language model on a trained nugget model, or one to go on with; unless the encoder is to be trained, its
    decoder alone learns."""
    wanted = recipe.model
    # Unless it is told otherwise, it reads as much as it learned to.
    history = max(recipe.objective.histories or [wanted.history])
    if is_language_model(str(wanted.start)):
        lm = NuggetLM.from_pretrained(str(wanted.start), dtype=torch.float32)
        _check_settings(wanted, lm.config, ("segment", "memory", "pooled"))
        lm.config.history = max(history, lm.config.history)
        lm.check_room(lm.config.history)
        nugget = lm.nugget
    else:
        nugget = load_nugget_model(wanted.start, dtype=torch.float32)
        lm = NuggetLM.from_nuggets(nugget, wanted.segment, history, wanted.memory, wanted.pooled)
    settings = ("scorer_layer", "selector", "gather", "residual", "feedback", "freeze")
    untold = ModelRecipe()
    _check_settings(
        wanted, nugget.config, [key for key in settings if getattr(wanted, key) != getattr(untold, key)]
    )
    nugget.config.ratio = wanted.ratio
    if not recipe.objective.train_encoder:
        lm.requires_grad_(False)
        nugget.adapter.decoder.requires_grad_(True)
        lm.ages.requires_grad_(wanted.memory == "nuggets")
        lm.get_input_embeddings().requires_grad_(False)
        for table in nugget.adapter.fixed_tables():
            table.requires_grad_(False)
    if wanted.dropout is not None:
        nugget.adapter.set_dropout(wanted.dropout)
    check_parts(lm, recipe)
    return lm


def _check_settings(wanted: ModelRecipe, config: PreTrainedConfig, keys: Sequence[str]) -> None:
    """Whether the model that is started from is what the recipe says."""
    for key in keys:
        if getattr(wanted, key) != getattr(config, key):
            raise ConfigError(
                f"model.{key} is {getattr(wanted, key)!r}, but {wanted.start!r} has {getattr(config, key)!r}."
            )


def build_nugget_model(recipe: Recipe) -> NuggetModel:
    """A backbone made into a nugget model, or one that was trained before."""
    wanted = recipe.model
    settings = (
        "ratio",
        "query_ratio",
        "scorer_layer",
        "selector",
        "gather",
        "residual",
        "feedback",
        "freeze",
    )
    if wanted.start is not None:
        model = leave_behind(load_nugget_model(wanted.start, dtype=torch.float32), wanted)
        model.config.ratio = wanted.ratio
        if wanted.query_ratio is not None:
            model.config.query_ratio = wanted.query_ratio
        if model.config.freeze != wanted.freeze:  # which parts learn is up to each run
            model.config.freeze = wanted.freeze
            model.requires_grad_(True)
            model._freeze()
        _check_settings(wanted, model.config, settings[2:])
    else:
        config = NuggetConfig(**{key: getattr(wanted, key) for key in settings})
        assert wanted.backbone is not None
        model = NuggetModel.from_backbone(wanted.backbone, config, dtype=torch.float32)
    decodes = recipe.objective.name != "contrastive"
    if decodes and not model.can_decode:
        raise BackboneError(
            f"the objective {recipe.objective.name!r} decodes, and {wanted.backbone or wanted.start!r} has no "
            f"decoder."
        )
    if not decodes and model.can_decode:
        model.adapter.decoder.requires_grad_(
            False
        )  # nothing is decoded; distributed training would wait for it
    model.config.objective = recipe.objective.name
    longest = recipe.data.max_tokens
    if longest > (room := backbone_window(model.adapter.config)):
        raise ConfigError(f"data.max_tokens is {longest}, but the model takes {room} at most.")
    # What is longer than all it learned from comes back poorly if it is read at once: it goes in parts.
    model.config.window = max(longest, model.config.window or SHORTEST)
    if recipe.objective.hide and model.tokenizer.unk_token_id is None:
        raise ConfigError("objective.hide needs a tokenizer with an unknown token; this one has none.")
    if wanted.dropout is not None:
        model.adapter.set_dropout(wanted.dropout)
    return model


def leave_behind(model: NuggetModel, wanted: ModelRecipe) -> NuggetModel:
    """A trained model without the parts a recipe turns off: its scorer for a rule, residual or feedback.

    What every recipe has unless it says otherwise is never such a part, so nothing is lost by an omission.
    """
    config = deepcopy(model.config)
    if not get_selector(wanted.selector).learned:
        config.selector = wanted.selector
    if wanted.residual == "off":
        config.residual = wanted.residual
    if not wanted.feedback:
        config.feedback = False
    if (config.selector, config.residual, config.feedback) == (
        model.config.selector,
        model.config.residual,
        model.config.feedback,
    ):
        return model
    less = NuggetModel(config, model.backbone)
    less.load_state_dict(model.state_dict(), strict=False)  # all but what was left behind
    less._tokenizer = model._tokenizer
    less.measure_content()
    return less


def check_parts(model: NuggetModel | NuggetLM, recipe: Recipe) -> None:
    """Fix the parts that the recipe names, and see that the others can learn."""
    wanted = recipe.model
    names = [name for name, _ in model.named_modules()]
    for part in [*wanted.freeze_parts, *recipe.optimizer.lr_scale]:
        if part not in names:
            near = get_close_matches(part, names, n=1, cutoff=0.3)
            raise ConfigError(
                f"the model has no part {part!r}" + (f": did you mean {near[0]!r}?" if near else ".")
            )
    for part in recipe.optimizer.lr_scale:
        if not any(parameter.requires_grad for parameter in model.get_submodule(part).parameters()):
            raise ConfigError(
                f"optimizer.lr_scale names {part!r}, which has nothing to train: it is frozen or tied."
            )
    for part in wanted.freeze_parts:
        model.get_submodule(part).requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("every part of the model is frozen: nothing is left to train.")
