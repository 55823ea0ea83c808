"""Build the model of a recipe, from a backbone or from a trained model, and freeze parts of it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from difflib import get_close_matches

import torch
from transformers import PreTrainedConfig

from textnuggets.causal.config import CausalConfig
from textnuggets.causal.modeling import CausalNuggetLM
from textnuggets.config import ARCHITECTURE, DEFAULTS, SHORTEST, NuggetConfig
from textnuggets.errors import BackboneError, ConfigError
from textnuggets.lm.modeling import NuggetLM, is_language_model
from textnuggets.model.families import backbone_window
from textnuggets.model.load import load_nugget_model
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.selection import get_selector
from textnuggets.train.recipe import Recipe
from textnuggets.train.tables import ModelRecipe

TrainedModel = NuggetModel | NuggetLM | CausalNuggetLM
# Settings of a nugget model that a recipe has; `backbone` is a name in a recipe, but a configuration in a model.
SHARED = [key for key in DEFAULTS if key in ModelRecipe.model_fields and key != "backbone"]


def build_model(recipe: Recipe) -> TrainedModel:
    """Return the model to train; frozen parameters do not require gradients."""
    if recipe.objective.name == "causal":
        return build_causal_model(recipe)
    if recipe.objective.name == "language_model":
        return build_language_model(recipe)
    model = build_nugget_model(recipe)
    on_cpu = torch.accelerator.current_accelerator(check_available=True) is None
    if on_cpu and recipe.optimizer.precision == "bfloat16":
        # The backward pass of PyTorch's fused attention is slow there; plain products train 1.4 times as fast (LOG.md).
        model.backbone.set_attn_implementation("eager")
    freeze_parts(model, recipe)
    return model


def build_causal_model(recipe: Recipe) -> CausalNuggetLM:
    """Return a decoder-only model with an untrained adapter, or with a trained one."""
    settings = recipe.model
    # The base is frozen, so it needs no more precision than it is run in.
    dtype = torch.bfloat16 if recipe.optimizer.precision == "bfloat16" else torch.float32
    if settings.start is not None:
        lm = CausalNuggetLM.from_pretrained(settings.start, dtype=dtype)
        _check_settings(settings, lm.config, ("segment", "scorer_layer", "rank"))
        if not settings.keeps_selector:
            _check_settings(settings, lm.config, ("selector",))
        lm.config.ratio = settings.ratio
    else:
        assert settings.backbone is not None
        keys = ("segment", "ratio", "scorer_layer", "selector", "rank")
        config = CausalConfig(**{key: getattr(settings, key) for key in keys})
        lm = CausalNuggetLM.from_base(settings.backbone, config, dtype=dtype)
    if recipe.data.max_tokens > (room := lm.base.config.max_position_embeddings):
        raise ConfigError(f"data.max_tokens is {recipe.data.max_tokens}, but the model takes at most {room}.")
    freeze_parts(lm, recipe)
    return lm


def build_language_model(recipe: Recipe) -> NuggetLM:
    """Return a language model on top of a trained nugget model, or a trained language model.

    Only the decoder is trained, unless the recipe sets `objective.train_encoder`.
    """
    settings = recipe.model
    # By default, the trained model reads the longest history it was trained with.
    history = max(recipe.objective.histories or [settings.history])
    if is_language_model(str(settings.start)):
        lm = NuggetLM.from_pretrained(str(settings.start), dtype=torch.float32)
        _check_settings(settings, lm.config, ("segment", "memory", "pooled"))
        lm.config.history = max(history, lm.config.history)
        lm.check_room(lm.config.history)
        nugget = lm.nugget
    else:
        nugget = load_nugget_model(settings.start, dtype=torch.float32)
        lm = NuggetLM.from_nuggets(nugget, settings.segment, history, settings.memory, settings.pooled)
    changed = [key for key in (*ARCHITECTURE, "freeze") if not settings.has_default(key)]
    _check_settings(settings, nugget.config, changed)
    nugget.config.ratio = settings.ratio
    if not recipe.objective.train_encoder:
        lm.requires_grad_(False)
        nugget.adapter.decoder.requires_grad_(True)
        lm.ages.requires_grad_(settings.memory == "nuggets")
        lm.get_input_embeddings().requires_grad_(False)
        for table in nugget.adapter.fixed_tables():
            table.requires_grad_(False)
    if settings.dropout is not None:
        nugget.adapter.set_dropout(settings.dropout)
    freeze_parts(lm, recipe)
    return lm


def build_nugget_model(recipe: Recipe) -> NuggetModel:
    """Return a nugget model on a backbone, or a trained one."""
    settings = recipe.model
    model = _start_model(settings) if settings.start is not None else _new_model(settings)
    decodes = recipe.objective.name != "contrastive"
    if decodes and not model.can_decode:
        raise BackboneError(
            f"the objective {recipe.objective.name!r} needs a decoder, which "
            f"{settings.backbone or settings.start!r} does not have."
        )
    if not decodes and model.can_decode:
        # Distributed training would wait for gradients that an unused decoder does not have.
        model.adapter.decoder.requires_grad_(False)
    model.config.objective = recipe.objective.name
    max_tokens = recipe.data.max_tokens
    if max_tokens > (limit := backbone_window(model.adapter.config)):
        raise ConfigError(f"data.max_tokens is {max_tokens}, but the model takes at most {limit}.")
    window = settings.window
    if window is not None and window > (limit := backbone_window(model.adapter.config, window)):
        raise ConfigError(f"model.window is {window}, but the model takes at most {limit}.")
    # Texts longer than the training documents are reconstructed poorly in one piece, so they are split.
    model.config.window = max(max_tokens, window or model.config.window or 0, SHORTEST)
    if recipe.objective.hide and model.tokenizer.unk_token_id is None:
        raise ConfigError("objective.hide needs a tokenizer with an unknown token; this one has none.")
    if settings.dropout is not None:
        model.adapter.set_dropout(settings.dropout)
    return model


def _new_model(settings: ModelRecipe) -> NuggetModel:
    """Return an untrained nugget model on the backbone."""
    assert settings.backbone is not None
    config = NuggetConfig(**{key: getattr(settings, key) for key in SHARED})
    return NuggetModel.from_backbone(settings.backbone, config, dtype=torch.float32)


def _start_model(settings: ModelRecipe) -> NuggetModel:
    """Return the trained model `settings.start` with the changes that the recipe makes to it."""
    model = adapt_model(load_nugget_model(settings.start, dtype=torch.float32), settings)
    fixed = [key for key in ARCHITECTURE if key != "selector" or not settings.keeps_selector]
    _check_settings(settings, model.config, fixed)
    model.config.ratio = settings.ratio
    if settings.query_ratio is not None:
        model.config.query_ratio = settings.query_ratio
    if model.config.freeze != settings.freeze:  # every run decides what it trains
        model.config.freeze = settings.freeze
        model.requires_grad_(True)
        model._freeze()
    return model


def adapt_model(model: NuggetModel, settings: ModelRecipe) -> NuggetModel:
    """Return a trained model with the recipe's selector, and without the parts that the recipe turns off.

    A learned selector can replace another one; a rule can replace any selector, and the scorer is dropped. Residual and
    feedback can be turned off, but not on. Default values turn nothing off, so a key left out of a recipe never drops
    trained weights.
    """
    config = deepcopy(model.config)
    if not settings.keeps_selector and (
        not get_selector(settings.selector).learned or model.selector.learned
    ):
        config.selector = settings.selector
    if settings.residual == "off":
        config.residual = settings.residual
    if not settings.feedback:
        config.feedback = False
    if all(getattr(config, key) == getattr(model.config, key) for key in ARCHITECTURE):
        return model
    adapted = NuggetModel(config, model.backbone)
    adapted.load_state_dict(model.state_dict(), strict=False)  # not strict: dropped parts have weights, too
    adapted._tokenizer = model._tokenizer
    adapted.measure_content()
    return adapted


def _check_settings(settings: ModelRecipe, config: PreTrainedConfig, keys: Sequence[str]) -> None:
    """Raise ConfigError if the start model has other settings than the recipe."""
    for key in keys:
        if getattr(settings, key) != getattr(config, key):
            raise ConfigError(
                f"model.{key} is {getattr(settings, key)!r}, but {settings.start!r} has {getattr(config, key)!r}."
            )


def freeze_parts(model: TrainedModel, recipe: Recipe) -> None:
    """Freeze the parts that the recipe names.

    Raises:
        ConfigError: If a part does not exist, if `lr_scale` names a part without trainable parameters, or if nothing is
            left to train.
    """
    names = [name for name, _ in model.named_modules()]
    for part in [*recipe.model.freeze_parts, *recipe.optimizer.lr_scale]:
        if part not in names:
            near = get_close_matches(part, names, n=1, cutoff=0.3)
            raise ConfigError(
                f"the model has no part {part!r}" + (f": did you mean {near[0]!r}?" if near else ".")
            )
    for part in recipe.optimizer.lr_scale:
        if not any(parameter.requires_grad for parameter in model.get_submodule(part).parameters()):
            raise ConfigError(
                f"optimizer.lr_scale names {part!r}, which has no parameters to train: they are frozen or tied."
            )
    for part in recipe.model.freeze_parts:
        model.get_submodule(part).requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("all parts of the model are frozen: there is nothing to train.")
