"""A training run from a recipe to the best model, which a killed run can go on with."""

from __future__ import annotations

import os
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from textnuggets.errors import CheckpointError, ConfigError, InputError, MissingExtraError
from textnuggets.io.files import replacing
from textnuggets.train.recipe import Recipe
from textnuggets.train.recipe_io import read_recipe

try:
    import accelerate
    import sacrebleu  # noqa: F401  so that a run does not find out at its first evaluation
    import tensorboard  # noqa: F401
except ImportError as error:
    raise MissingExtraError(error.name or "accelerate", "train", "training") from error

import torch
from transformers import TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback

from textnuggets.data.packed import load_corpus, tokenizers_of
from textnuggets.lm.corpus import load_streams
from textnuggets.lm.modeling import NuggetLM
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.token_encoder import load_token_encoder
from textnuggets.train import checkpoints
from textnuggets.train.build import build_model
from textnuggets.train.callbacks import Report, StopGently
from textnuggets.train.objectives.base import Objective
from textnuggets.train.objectives.decoding import Decoding
from textnuggets.train.trainer import STATE, NuggetTrainer

# What may differ when a run goes on; everything else would make it another run.
CHANGEABLE = ("optimizer.steps", "report", "trainer", "data.cache")
# Settings of TrainingArguments that our optimizer, batches and checkpoints do not look at.
WITHOUT_EFFECT = {
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "auto_find_batch_size",
    "eval_on_start",
    "group_by_length",
    "label_smoothing_factor",
    "load_best_model_at_end",
    "metric_for_best_model",
    "num_train_epochs",
    "optim",
    "optim_args",
    "per_device_eval_batch_size",
    "per_device_train_batch_size",
    "save_total_limit",
    "weight_decay",
}
DAY = 86_400  # seconds
SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}


def train(recipe: Recipe, out: str | Path, resume: bool = False) -> Path:
    """Train as a recipe says; returns the folder of the best model.

    Args:
        recipe: From `read_recipe`.
        out: The folder of the run.
        resume: Go on with the run that is in the folder, from its newest whole checkpoint.
    """
    out = Path(out)
    report = Report(out, recipe.optimizer.steps)
    arguments = training_arguments(recipe, out)
    if arguments.n_gpu > 1:
        raise ConfigError(
            f"{arguments.n_gpu} GPUs need as many processes: torchrun --nproc-per-node {arguments.n_gpu} -m "
            f"textnuggets train ..., or CUDA_VISIBLE_DEVICES=0 for one."
        )
    checkpoint = _open_run(recipe, out, resume, report)
    reached = -1 if checkpoint is None else checkpoints.step_of(checkpoint)
    if reached >= recipe.optimizer.steps and (out / "best").is_dir():
        report.say(f"finished before, at step {reached}")
        return out / "best"
    set_seed(recipe.seed)
    model = build_model(recipe)
    if report.is_main:
        with replacing(out / "recipe.toml") as temporary:
            temporary.write_text(recipe.to_toml(), encoding="utf-8")
    with accelerate.PartialState().local_main_process_first():  # the others find it packed
        corpora = [read_corpus(model, recipe, sources) for sources in (recipe.data.train, recipe.data.dev)]
        for name, corpus in zip(("train", "dev"), corpora, strict=True):
            report.say(f"{name}: {corpus}")
        objective = make_objective(model, recipe, *corpora)
    report.accuracy = objective.accuracy
    trainer = NuggetTrainer(model, recipe, arguments, objective, report)
    stop = StopGently(report)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(stop)
    if checkpoint is not None:
        report.load_state(checkpoint / STATE, recipe)
        report.say(f"going on from {checkpoint}")
    with stop.watching():
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    report.close()
    if stop.stopped:
        raise KeyboardInterrupt
    if not (out / "best").is_dir():
        raise CheckpointError(
            f"{out}: no model was kept: the dev loss was never a number, or the disk is full."
        )
    return out / "best"


def _open_run(recipe: Recipe, out: Path, resume: bool, report: Report) -> Path | None:
    """Prepare the folder of a run; the checkpoint to go on from, if there is one."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: name a folder for the run.")
    there = (out / "recipe.toml").is_file()
    if not resume:
        if there and report.is_main:
            raise InputError(f"{out} holds a run already: go on with it by --resume, or name another folder.")
        out.mkdir(parents=True, exist_ok=True)
        return None
    if not there:
        raise InputError(f"{out} holds no run to resume.")
    check_same_run(read_recipe(out / "recipe.toml", check_corpora=False), recipe, out)
    checkpoint = checkpoints.newest_whole(out, report.say)
    if checkpoint is None:
        report.say("no whole checkpoint yet: starting at the beginning.")
    if report.is_main:
        step = -1 if checkpoint is None else checkpoints.step_of(checkpoint)
        report.forget_after(step)
        checkpoints.set_aside(out, step)
    return checkpoint


def check_same_run(before: Recipe, now: Recipe, out: Path) -> None:
    """Whether a recipe goes on with the run that another began."""
    old, new = _flat(before.model_dump()), _flat(now.model_dump())
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key) and not key.startswith(CHANGEABLE):
            raise ConfigError(
                f"{out} was begun with {key} = {old.get(key)!r}, and cannot go on with {new.get(key)!r}. "
                f"To train on from its best model, name it as model.start of a new run."
            )


def _flat(tables: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tables.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def read_corpus(model: NuggetModel | NuggetLM, recipe: Recipe, sources: list[str]) -> Any:
    """Corpora as the objective reads them: packed documents, or for a language model streams of tokens."""
    if isinstance(model, NuggetLM):
        data = recipe.data
        return load_streams(sources, model.tokenizer, recipe.model.segment, data.cache, data.languages[0])
    return load_corpus(sources, recipe.packing, tokenizers_of(model, recipe.packing))


def make_objective(model: NuggetModel | NuggetLM, recipe: Recipe, train: Any, dev: Any) -> Objective:
    """What the recipe's objective needs besides the model and its documents, and the objective."""
    if isinstance(model, NuggetLM):
        from textnuggets.train.objectives.language_model import LanguageModelling

        return LanguageModelling(model, recipe, train, dev)
    if recipe.objective.name != "contrastive":
        return Decoding(model, recipe, train, dev)
    from textnuggets.train.objectives.contrastive import Contrastive

    teacher = None
    if recipe.objective.distill:
        name = recipe.objective.teacher or recipe.model.backbone or recipe.model.start
        teacher = load_token_encoder(str(name)).requires_grad_(False)
    return Contrastive(model, recipe, train, dev, teacher)


def training_arguments(recipe: Recipe, out: Path) -> TrainingArguments:
    """The recipe in Hugging Face's terms."""
    optimizer, report = recipe.optimizer, recipe.report
    known = [item.name for item in fields(TrainingArguments)]
    for key in recipe.trainer:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            raise ConfigError(
                f"trainer.{key} is no setting of TrainingArguments"
                + (f": did you mean {near[0]!r}?" if near else ".")
            )
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(out / "tensorboard")
    ours: dict[str, Any] = {
        "output_dir": str(out),
        "max_steps": optimizer.steps,
        "gradient_accumulation_steps": optimizer.accumulate,
        "learning_rate": optimizer.lr,
        "lr_scheduler_type": SCHEDULES[optimizer.schedule],
        "warmup_steps": optimizer.warmup_steps,
        "max_grad_norm": optimizer.clip,
        "bf16": optimizer.precision == "bfloat16",
        "fp16": optimizer.precision == "float16",
        "gradient_checkpointing": optimizer.gradient_checkpointing,
        "logging_steps": report.log_every,
        "eval_strategy": "steps",
        "eval_steps": report.evaluate_every,
        "save_strategy": "steps",
        "save_steps": report.save_every,
        "seed": recipe.seed,
        "report_to": ["tensorboard"],
        "disable_tqdm": True,  # the live line is ours
        "remove_unused_columns": False,
        # The first segment of a text has nothing to read, and so no use for cross-attention.
        "ddp_find_unused_parameters": recipe.objective.name == "language_model",
        "ddp_broadcast_buffers": False,  # they never change; between two forward passes they must not be written
        "average_tokens_across_devices": True,
        "logging_nan_inf_filter": False,
    }
    ours["ddp_timeout"] = DAY  # one process packs a corpus, which may take hours, while the others wait
    on_cpu: dict[str, Any] = {}
    if torch.accelerator.current_accelerator(check_available=True) is None:
        on_cpu["use_cpu"] = True  # or bfloat16 is refused
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            # Without it, processes that torchrun started would each train a model of its own.
            on_cpu["ddp_backend"] = "gloo"
    if clash := sorted((ours.keys() | WITHOUT_EFFECT) & recipe.trainer.keys()):
        raise ConfigError(f"trainer.{clash[0]} is decided by the rest of the recipe.")
    try:
        return TrainingArguments(**ours, **{**on_cpu, **recipe.trainer})
    except (ValueError, TypeError, ImportError) as error:
        raise ConfigError(f"Hugging Face's TrainingArguments: {str(error).splitlines()[0]}") from error
