"""Whether a recipe can be: each setting alone, and all of them together."""

from __future__ import annotations

from textnuggets.config import check_ratio
from textnuggets.errors import ConfigError
from textnuggets.io.corpora import check_source
from textnuggets.train.recipe import ObjectiveRecipe, Recipe

# Settings that go with some objectives alone.
ONLY_WITH = {
    "hide": ("autoencode", "denoise", "translate"),
    "sampled_softmax": ("autoencode", "denoise", "translate", "language_model"),
    **dict.fromkeys(
        ("query_ratios", "temperature", "distill", "distill_temperature", "teacher", "teacher_ratios"),
        ("contrastive",),
    ),
    **dict.fromkeys(("histories", "segments", "train_encoder"), ("language_model",)),
}


def check_recipe(recipe: Recipe, place: str) -> None:
    """Whether the settings can be, alone and together; nothing is loaded for it."""

    def refuse(message: str) -> None:
        raise ConfigError(f"{place}: {message}")

    model, data, objective = recipe.model, recipe.data, recipe.objective
    optimizer, report = recipe.optimizer, recipe.report
    if (model.backbone is None) == (model.start is None):
        refuse("give one of model.backbone and model.start.")
    ratios_of = {
        "model.ratio": [model.ratio],
        "model.query_ratio": [] if model.query_ratio is None else [model.query_ratio],
        "objective.ratios": objective.ratios,
        "objective.anneal_from": [objective.anneal_from],
        "objective.query_ratios": objective.query_ratios,
        "objective.teacher_ratios": objective.teacher_ratios,
        "report.ratios": report.ratios,
    }
    for key, ratios in ratios_of.items():
        for ratio in ratios:
            try:
                check_ratio(ratio)
            except ConfigError as error:
                refuse(f"{key}: {error}")
    at_least = {
        "model.scorer_layer": (model.scorer_layer, 0),
        "data.max_tokens": (data.max_tokens, 8),
        "data.min_tokens": (data.min_tokens, 1),
        "model.segment": (model.segment, 2),
        "model.history": (model.history, 0),
        "model.pooled": (model.pooled, 1),
        "objective.anneal_steps": (objective.anneal_steps, 0),
        "objective.segments": (objective.segments, 0),
        "objective.sampled_softmax": (objective.sampled_softmax, 0),
        "optimizer.steps": (optimizer.steps, 1),
        "optimizer.accumulate": (optimizer.accumulate, 1),
        "optimizer.warmup_steps": (optimizer.warmup_steps, 0),
        "report.log_every": (report.log_every, 1),
        "report.evaluate_every": (report.evaluate_every, 1),
        "report.documents": (report.documents, 1),
        "report.bleu_documents": (report.bleu_documents, 0),
        "report.patience": (report.patience, 0),
        "report.save_every": (report.save_every, 1),
        "report.keep": (report.keep, 1),
        "seed": (recipe.seed, 0),
    }
    for key, (value, least) in at_least.items():
        if value < least:
            refuse(f"{key} must be at least {least}, got {value}.")
    for key, share in (("objective.delete", objective.delete), ("objective.hide", objective.hide)):
        if not 0 <= share < 1:
            refuse(f"{key} is a share of tokens, from 0 to below 1; got {share}.")
    if model.dropout is not None and not 0 <= model.dropout < 1:
        refuse(f"model.dropout must lie from 0 to below 1, got {model.dropout}.")
    rates = [("optimizer.lr_scale", value) for value in optimizer.lr_scale.values()]
    for key, rate in [
        *rates,
        ("optimizer.weight_decay", optimizer.weight_decay),
        ("optimizer.clip", optimizer.clip),
    ]:
        if rate < 0:
            refuse(f"{key} must not be negative, got {rate}.")
    if recipe.seed >= 2**32:
        refuse(f"seed must be below 2 ** 32, got {recipe.seed}.")
    if optimizer.lr <= 0:
        refuse(f"optimizer.lr must be above 0, got {optimizer.lr}.")
    if len(optimizer.betas) != 2 or not all(0 <= beta < 1 for beta in optimizer.betas):
        refuse(f"optimizer.betas must be two numbers from 0 to below 1, got {optimizer.betas}.")
    if optimizer.batch_tokens < data.max_tokens:
        refuse(
            f"optimizer.batch_tokens ({optimizer.batch_tokens}) must hold at least one document of "
            f"data.max_tokens ({data.max_tokens})."
        )
    if data.min_tokens > data.max_tokens:
        refuse(f"data.min_tokens ({data.min_tokens}) is above data.max_tokens ({data.max_tokens}).")
    if optimizer.warmup_steps > optimizer.steps:
        refuse(f"optimizer.warmup_steps ({optimizer.warmup_steps}) is above optimizer.steps.")
    for key, value in (("save_every", report.save_every), ("evaluate_every", report.evaluate_every)):
        if value % report.log_every:
            # A resumed run could not repeat the averages of an interval it saw only half of.
            refuse(f"report.{key} ({value}) must be a multiple of report.log_every ({report.log_every}).")
    if objective.name == "denoise" and not objective.delete:
        refuse("objective 'denoise' needs objective.delete, the share of tokens to delete; TSDAE's is 0.6.")
    if objective.name != "denoise" and objective.delete:
        refuse(f"objective.delete goes with the objective 'denoise', not with {objective.name!r}.")
    if objective.name == "contrastive":
        if optimizer.batch_tokens < 4 * data.max_tokens:
            refuse(
                f"optimizer.batch_tokens ({optimizer.batch_tokens}) must hold two pairs of documents of "
                f"data.max_tokens ({data.max_tokens}), or there is nothing to tell apart."
            )
        for name in ("temperature", "distill_temperature"):
            if getattr(objective, name) <= 0:
                refuse(f"objective.{name} must be above 0, got {getattr(objective, name)}.")
        if len(objective.teacher_ratios) != 2:
            refuse(
                f"objective.teacher_ratios are two, of queries and documents; got {objective.teacher_ratios}."
            )
        if not 0 <= objective.distill <= 1:
            refuse(f"objective.distill must lie from 0 to 1, got {objective.distill}.")
        for name in ("teacher", "teacher_ratios"):
            if not objective.distill and getattr(objective, name) != getattr(ObjectiveRecipe(), name):
                refuse(f"objective.{name} has nothing to say while objective.distill is 0.")
    for name, fitting in ONLY_WITH.items():
        if objective.name not in fitting and getattr(objective, name) != getattr(ObjectiveRecipe(), name):
            refuse(f"objective.{name} does not go with the objective {objective.name!r}.")
    if objective.name == "language_model":
        if any(history < 0 or history > model.history for history in objective.histories):
            refuse(f"objective.histories must lie from 0 to model.history ({model.history}).")
        if optimizer.batch_tokens < model.segment:
            refuse(
                f"optimizer.batch_tokens ({optimizer.batch_tokens}) must hold one segment ({model.segment})."
            )
        if optimizer.gradient_checkpointing:
            refuse("optimizer.gradient_checkpointing does not go with the objective 'language_model'.")
        if not objective.train_encoder and (objective.ratios or objective.anneal_steps):
            refuse(
                "nuggets that are computed once have one ratio: objective.ratios need objective.train_encoder."
            )
        if model.start is None:
            refuse("a language model starts from a trained nugget model: name it as model.start.")
        if objective.train_encoder and model.memory != "nuggets":
            refuse(f"objective.train_encoder: a memory of {model.memory!r} has no encoder to train.")
    wanted = 2 if objective.name == "translate" else 1
    if len(data.languages) != wanted:
        refuse(f"objective {objective.name!r} needs {wanted} data.languages, got {data.languages}.")
    for key, sources in (("data.train", data.train), ("data.dev", data.dev)):
        if not sources:
            refuse(f"{key} names no corpus.")
        for source in sources:
            check_source(source)
