"""Run a training from a recipe to the best model, and resume it after an interruption."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from textnuggets.errors import CheckpointError, ConfigError, InputError, MissingExtraError, TextnuggetsError
from textnuggets.io.corpora import check_source
from textnuggets.io.disk import make_folder
from textnuggets.io.files import check_not_read, replacing
from textnuggets.io.folders import recover_folders, remove_stale
from textnuggets.io.locks import writing
from textnuggets.train.recipe import Recipe
from textnuggets.train.recipe_io import read_recipe

try:
    import accelerate
    import sacrebleu  # noqa: F401  (a missing package fails here, not at the first evaluation)
    import tensorboard  # noqa: F401
except ImportError as error:
    raise MissingExtraError(error.name or "accelerate", "train", "training") from error

import torch
from transformers import TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback

from textnuggets.causal.modeling import CausalNuggetLM
from textnuggets.data.packed import load_corpus, tokenizers_of
from textnuggets.lm.corpus import load_streams
from textnuggets.lm.modeling import NuggetLM
from textnuggets.model.token_encoder import load_token_encoder
from textnuggets.train import checkpoints
from textnuggets.train.build import TrainedModel, build_model
from textnuggets.train.callbacks import Report, StopGently
from textnuggets.train.objectives.base import Objective
from textnuggets.train.objectives.decoding import Decoding
from textnuggets.train.trainer import STATE, NuggetTrainer

# Keys and tables that may change when a run is resumed.
CHANGEABLE = ("optimizer.steps", "report", "trainer", "data.cache")
# Settings of TrainingArguments that would be ignored, as NuggetTrainer makes its own optimizer, batches and checkpoints.
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
WRITTEN = ("recipe.toml", "metrics.jsonl", "best/**/*", "checkpoint-*/**/*")  # files that a run replaces
DAY = 86_400  # seconds
SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}


def train(recipe: Recipe, out: str | Path, resume: bool = False) -> Path:
    """Train a model and return the folder of the best one.

    Args:
        recipe: Settings of the run, from `read_recipe`.
        out: Output folder of the run.
        resume: Whether to resume the run in `out` from its newest complete checkpoint.
    """
    out = Path(out)
    report = Report(out, recipe.optimizer.steps)
    arguments = training_arguments(recipe, out)
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: choose a folder for the run.")
    if resume and not (out / "recipe.toml").is_file():
        raise InputError(f"{out} contains no run to resume.")
    if arguments.n_gpu > 1:
        raise ConfigError(
            f"{arguments.n_gpu} GPUs need one process each: use torchrun --nproc-per-node {arguments.n_gpu} -m "
            f"textnuggets train ..., or CUDA_VISIBLE_DEVICES=0 for a single GPU."
        )
    _check_not_read(recipe, out)
    make_folder(out)
    with writing(out) if report.is_main else nullcontext():  # the main process writes for all
        return _train(recipe, out, arguments, resume, report)


def _train(recipe: Recipe, out: Path, arguments: TrainingArguments, resume: bool, report: Report) -> Path:
    checkpoint = _open_run(recipe, out, resume, report)
    reached = -1 if checkpoint is None else checkpoints.step_of(checkpoint)
    if reached >= recipe.optimizer.steps and (out / "best").is_dir():
        report.say(f"already finished at step {reached}")
        return out / "best"
    set_seed(recipe.seed)
    model = build_model(recipe)
    if report.is_main:
        with replacing(out / "recipe.toml") as temporary:
            temporary.write_text(recipe.to_toml(), encoding="utf-8")
    with accelerate.PartialState().local_main_process_first():  # it packs the corpora for the others
        corpora = [read_corpus(model, recipe, sources) for sources in (recipe.data.train, recipe.data.dev)]
        for name, corpus in zip(("train", "dev"), corpora, strict=True):
            report.say(f"{name}: {corpus}")
        objective = make_objective(model, recipe, *corpora)
    report.accuracy = objective.accuracy
    stop = StopGently(report)
    if checkpoint is not None:
        report.load_state(checkpoint / STATE, recipe)
        report.say(f"resuming from {checkpoint}")
    with stop.watching(), _blaming_settings(recipe, report):
        trainer = NuggetTrainer(model, recipe, arguments, objective, report)
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(stop)
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    report.close()
    if stop.stopped:
        raise KeyboardInterrupt
    if not (out / "best").is_dir():
        raise CheckpointError(
            f"{out}: no model was saved, because the dev loss was never finite or the disk is full."
        )
    return out / "best"


@contextmanager
def _blaming_settings(recipe: Recipe, report: Report) -> Iterator[None]:
    """Raise ConfigError for whatever the table `trainer` makes Hugging Face's Trainer raise before the first batch."""
    try:
        yield
    except (TextnuggetsError, OSError):
        raise
    except Exception as error:
        if not recipe.trainer or report.has_counted:
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        settings = ", ".join(f"trainer.{key}" for key in recipe.trainer)
        raise ConfigError(f"Hugging Face's Trainer does not start with {settings}: {reason}") from error


def _check_not_read(recipe: Recipe, out: Path) -> None:
    """Raise InputError if the run would replace a corpus or model that it reads."""
    corpora = [
        file for source in (*recipe.data.train, *recipe.data.dev) for file in check_source(source) or ()
    ]
    written = [path for pattern in WRITTEN for path in out.glob(pattern)]
    check_not_read(written, [*corpora, recipe.model.backbone, recipe.model.start, recipe.objective.teacher])


def _open_run(recipe: Recipe, out: Path, resume: bool, report: Report) -> Path | None:
    """Prepare the folder of a run, which exists, and return the checkpoint to resume from, if any."""
    if not resume:
        if (out / "recipe.toml").is_file() and report.is_main:
            raise InputError(
                f"{out} already contains a run: resume it with --resume, or choose another folder."
            )
        return None
    recover_folders(out)
    before = read_recipe(out / "recipe.toml", check_corpora=False)
    check_same_run(before, recipe, out)
    if not before.model.keeps_selector:
        recipe.model.selector = before.model.selector  # the same value, but set explicitly as it was before
    checkpoint = checkpoints.newest_complete(out, report.say)
    if checkpoint is None:
        report.say("no complete checkpoint: starting from the beginning.")
    if report.is_main:
        remove_stale(out)
        report.clear_staging()
        step = -1 if checkpoint is None else checkpoints.step_of(checkpoint)
        report.forget_after(step)
        checkpoints.set_aside(out, step)
        checkpoints.rotate(out, recipe.report.keep)
    return checkpoint


def check_same_run(before: Recipe, now: Recipe, out: Path) -> None:
    """Raise ConfigError if a recipe differs from the recipe of the run it resumes."""
    old, new = _flat(before.model_dump()), _flat(now.model_dump())
    if before.model.keeps_selector and not now.model.keeps_selector:
        old["model.selector"] = None  # the value is a default that the run did not use
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key) and not key.startswith(CHANGEABLE):
            raise ConfigError(
                f"{out} was started with {key} = {old.get(key)!r} and cannot be resumed with {new.get(key)!r}. "
                f"To continue from its best model, start a new run with model.start={out / 'best'}."
            )


def _flat(tables: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def read_corpus(model: TrainedModel, recipe: Recipe, sources: list[str]) -> Any:
    """Return corpora as packed documents, as pairs for the contrastive objective, or as token streams for a language model."""
    data = recipe.data
    if isinstance(model, NuggetLM | CausalNuggetLM):
        return load_streams(sources, model.tokenizer, recipe.model.segment, data.cache, data.languages[0])
    if recipe.objective.name != "contrastive":
        return load_corpus(sources, recipe.packing, tokenizers_of(model, recipe.packing))
    from textnuggets.train.pairs import ArticlePairs
    from textnuggets.train.query_pairs import has_queries, load_pairs

    if has_queries(sources):
        if model.selector.needs_sentence_ends:
            raise ConfigError(
                f"pairs of queries and documents cannot train the selector {model.selector.name!r}."
            )
        return load_pairs(sources, model.tokenizer, recipe.data.max_tokens)
    corpus = load_corpus(sources, recipe.packing, tokenizers_of(model, recipe.packing))
    return ArticlePairs(corpus, model.tokenizer.all_special_ids)


def make_objective(model: TrainedModel, recipe: Recipe, train: Any, dev: Any) -> Objective:
    """Return the objective of a recipe; load the teacher if it has one."""
    if isinstance(model, NuggetLM):
        from textnuggets.train.objectives.language_model import LanguageModelling

        return LanguageModelling(model, recipe, train, dev)
    if isinstance(model, CausalNuggetLM):
        from textnuggets.train.objectives.causal import CausalLanguageModelling

        return CausalLanguageModelling(model, recipe, train, dev)
    if recipe.objective.name != "contrastive":
        return Decoding(model, recipe, train, dev)
    from textnuggets.train.objectives.contrastive import Contrastive

    teacher = None
    if recipe.objective.distill:
        name = recipe.objective.teacher or recipe.model.backbone or recipe.model.start
        teacher = load_token_encoder(str(name)).requires_grad_(False)
    return Contrastive(model, recipe, train, dev, teacher)


def training_arguments(recipe: Recipe, out: Path) -> TrainingArguments:
    """Return the recipe as Hugging Face's TrainingArguments."""
    optimizer, report = recipe.optimizer, recipe.report
    chosen = _check_types(recipe.trainer)
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
        "disable_tqdm": True,  # Report shows progress
        "remove_unused_columns": False,
        # The first segment of a text has no history, so cross-attention or the scorer is not used.
        "ddp_find_unused_parameters": recipe.objective.name in ("language_model", "causal"),
        "ddp_broadcast_buffers": False,  # they are constant, and must not be written between two forward passes
        "average_tokens_across_devices": True,
        "logging_nan_inf_filter": False,
    }
    ours["ddp_timeout"] = DAY  # packing a corpus may take hours, in one process while the others wait
    on_cpu: dict[str, Any] = {}
    if torch.accelerator.current_accelerator(check_available=True) is None:
        on_cpu["use_cpu"] = True  # otherwise bfloat16 is rejected
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            # Without a backend, each process started by torchrun would train its own model.
            on_cpu["ddp_backend"] = "gloo"
    if clash := sorted((ours.keys() | WITHOUT_EFFECT) & chosen.keys()):
        raise ConfigError(
            f"trainer.{clash[0]} cannot be set: it is determined by the other tables of the recipe."
        )
    try:
        arguments = TrainingArguments(**ours, **{**on_cpu, **chosen})
        arguments.get_process_log_level()
    except Exception as error:  # whatever it is, a setting caused it
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"Hugging Face's TrainingArguments: {reason}") from error
    if arguments.fsdp and arguments.world_size == 1:
        raise ConfigError(
            "trainer.fsdp needs several processes: use torchrun --nproc-per-node N -m textnuggets train ..."
        )
    return arguments


def _check_types(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings of TrainingArguments converted to its types, which it does not check itself."""
    kinds = get_type_hints(TrainingArguments)
    known = [item.name for item in fields(TrainingArguments)]
    converted = {}
    for key, value in settings.items():
        if key not in known:
            near = get_close_matches(key, known, n=1)
            raise ConfigError(
                f"trainer.{key} is not a setting of TrainingArguments"
                + (f": did you mean {near[0]!r}?" if near else ".")
            )
        try:
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigError(f"trainer.{key} must be a finite number, got {value!r}.")
            converted[key] = TypeAdapter(kinds[key]).validate_python(value)
        except ValidationError as error:
            raise ConfigError(f"trainer.{key}: {error.errors()[0]['msg']}, got {value!r}.") from error
    return converted
