"""Recipes: everything that defines a training run, in one TOML file.

A recipe is checked whole before anything is loaded. Every key is a field below, and its docstring is
its documentation; `docs/training.md` is made from them.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from textnuggets.config import ResidualMode, check_ratio
from textnuggets.errors import ConfigError
from textnuggets.text.corpora import check_source

SHIPPED = Path(__file__).parent.parent / "recipes"
Objective = Literal["autoencode", "denoise", "translate"]
Schedule = Literal["constant", "linear", "cosine"]
Precision = Literal["float32", "bfloat16", "float16"]


@dataclass
class ModelRecipe:
    """What is trained."""

    backbone: str | None = None
    """Hub id or folder of the encoder-decoder to start from."""
    start: str | None = None
    """Folder or hub id of a nugget model to go on from, instead of a backbone."""
    ratio: float = 0.1
    """The ratio the trained model uses unless it is told another."""
    scorer_layer: int = 3
    """The encoder layer l that is scored."""
    selector: str = "learned"
    """Who picks the nuggets: learned, chunking, sentence_boundary, all_tokens, or mean (TSDAE)."""
    residual: ResidualMode = "add"
    """How scores enter cross-attention: add, straight_through or off."""
    feedback: bool = True
    """Whether the layers above l are told which tokens were picked."""
    freeze: bool = True
    """Whether the embeddings and the bottom l layers stay fixed."""
    freeze_parts: list[str] = field(default_factory=list)
    """Names of further modules that stay fixed, such as "backbone.model.decoder.layers.0"."""
    dropout: float | None = None
    """Dropout in training; the backbone's own by default."""
    source_language: str | None = None
    """The code a multilingual tokenizer has for the source language, such as "en_XX"."""
    target_language: str | None = None
    """The same for the target language."""


@dataclass
class DataRecipe:
    """What it is trained on."""

    train: list[str] = field(default_factory=list)
    """Corpora: .txt, .jsonl or .parquet files, folders of them, or hf:name:config:split."""
    dev: list[str] = field(default_factory=list)
    """Corpora to measure progress on."""
    languages: list[str] = field(default_factory=lambda: ["en"])
    """The language of the texts; for translation two, source and target."""
    max_tokens: int = 128
    """The most tokens of a document, special ones included; sentences are joined up to it."""
    min_tokens: int = 2
    """Documents with fewer tokens are left out."""
    cache: str = "~/.cache/textnuggets/packed"
    """Where packed documents are kept for the next run."""


@dataclass
class ObjectiveRecipe:
    """What is learned."""

    name: Objective = "autoencode"
    """autoencode (the text itself), denoise (the text, from a part of it) or translate."""
    ratios: list[float] = field(default_factory=list)
    """One of these is drawn for every step, so that one model serves them all; by default model.ratio."""
    anneal_steps: int = 0
    """Steps in which the ratio falls from anneal_from to the drawn one."""
    anneal_from: float = 1.0
    """The ratio of the first step, if it is annealed."""
    delete: float = 0.0
    """denoise: the share of source tokens that are deleted at random; TSDAE's is 0.6."""
    hide: float = 0.0
    """The share of the decoder's own input tokens that are hidden, so that it must read the nuggets."""
    sampled_softmax: int = 0
    """Decide between this many tokens of the vocabulary in training, the batch's and random others;
    0 is all of them. Evaluation is always exact; the token accuracy shown in training is among these."""


@dataclass
class OptimizerRecipe:
    """How it is learned: AdamW."""

    steps: int = 10_000
    """Updates of the weights."""
    batch_tokens: int = 2048
    """Tokens that one process takes in at once, padding included, counted on the longer side."""
    accumulate: int = 1
    """Batches whose gradients make one update."""
    lr: float = 5e-5
    """Learning rate."""
    lr_scale: dict[str, float] = field(default_factory=dict)
    """Factors for parts of the model by name, such as {scorer = 3.0}."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    """AdamW's decay rates."""
    weight_decay: float = 0.0
    """AdamW's weight decay; norms and biases have none."""
    clip: float = 1.0
    """The largest norm of a gradient; 0 does not clip."""
    schedule: Schedule = "linear"
    """How the learning rate goes on after warming up: constant, linear or cosine, both down to 0."""
    warmup_steps: int = 0
    """Steps in which the learning rate rises from 0."""
    precision: Precision = "float32"
    """Mixed precision: bfloat16 or float16 on a GPU."""
    gradient_checkpointing: bool = False
    """Compute activations twice to save memory."""


@dataclass
class ReportRecipe:
    """What is measured and kept on the way."""

    log_every: int = 10
    """Steps between two lines of metrics.jsonl."""
    evaluate_every: int = 500
    """Steps between two evaluations on the dev corpora."""
    documents: int = 256
    """Dev documents for loss and token accuracy."""
    bleu_documents: int = 32
    """Dev documents that are decoded, greedily, for BLEU; 0 is none."""
    ratios: list[float] = field(default_factory=list)
    """Ratios to evaluate at; by default those that are trained."""
    patience: int = 0
    """Stop after this many evaluations without a better dev loss; 0 never does."""
    save_every: int = 500
    """Steps between two checkpoints."""
    keep: int = 2
    """Checkpoints to keep; the best model is kept besides."""


@dataclass
class Recipe:
    """One training run."""

    model: ModelRecipe = field(default_factory=ModelRecipe)
    data: DataRecipe = field(default_factory=DataRecipe)
    objective: ObjectiveRecipe = field(default_factory=ObjectiveRecipe)
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    report: ReportRecipe = field(default_factory=ReportRecipe)
    seed: int = 0
    """Where all that is random comes from."""
    trainer: dict[str, Any] = field(default_factory=dict)
    """Further settings of Hugging Face's TrainingArguments, such as fsdp or torch_compile."""

    @property
    def ratios(self) -> list[float]:
        """The ratios that are drawn from."""
        return self.objective.ratios or [self.model.ratio]

    @property
    def report_ratios(self) -> list[float]:
        """The ratios that are evaluated."""
        return list(dict.fromkeys(self.report.ratios or self.ratios))

    def to_toml(self) -> str:
        """The recipe with every key spelled out."""
        tables = asdict(self)
        plain = {key: value for key, value in tables.items() if not isinstance(value, dict)}
        lines = [f"{key} = {_toml_value(value)}" for key, value in plain.items()]
        for name, table in tables.items():
            if isinstance(table, dict) and table:
                lines += ["", f"[{name}]"]
                lines += [
                    f"{key} = {_toml_value(value)}" for key, value in table.items() if value is not None
                ]
        return "\n".join(lines) + "\n"


def find_recipe(name: str) -> Path:
    """The file of a recipe: a path, or the name of one that comes with the package."""
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return path
    shipped = {file.stem: file for file in SHIPPED.glob("*.toml")}
    if name not in shipped:
        raise ConfigError(f"no recipe {name!r}: name a .toml file, or one of {', '.join(sorted(shipped))}.")
    return shipped[name]


def read_recipe(path: str | Path, changes: Iterable[str] = (), checked: bool = True) -> Recipe:
    """A recipe from a TOML file, with `changes` such as `optimizer.lr=1e-4` put in, checked whole."""
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: the recipe cannot be read ({reason}).") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}.") from error
    recipe = _fill(Recipe, tables, str(path), "")
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            raise ConfigError(f"--set {change}: write it as key=value.")
        nested: dict[str, Any] = {}
        table = nested
        *parents, last = key.strip().split(".")
        for parent in parents:
            table = table.setdefault(parent, {})
        table[last] = _parse_value(text.strip())
        _update(recipe, nested, f"--set {change}", "")
    if checked:
        check_recipe(recipe, str(path))
    return recipe


def _fill(kind: type, tables: dict[str, Any], place: str, prefix: str) -> Any:
    made = kind()
    _update(made, tables, place, prefix)
    return made


def _update(part: Any, tables: dict[str, Any], place: str, prefix: str) -> None:
    """Put values into a part of a recipe, each checked against its field's type."""
    types = get_type_hints(type(part))
    for key, value in tables.items():
        if key not in types:
            raise ConfigError(f"{place}: unknown key {prefix + key!r}{_nearest(prefix + key)}.")
        current = getattr(part, key)
        if is_dataclass(current):
            if not isinstance(value, dict):
                raise ConfigError(f"{place}: {prefix + key} is a table of settings, not a value.")
            _update(current, value, place, f"{prefix}{key}.")
        elif isinstance(current, dict) and isinstance(value, dict):
            setattr(part, key, {**current, **_typed(value, types[key], place, prefix + key)})
        else:
            setattr(part, key, _typed(value, types[key], place, prefix + key))


def all_keys(part: Any = None, prefix: str = "") -> list[str]:
    """Every key a recipe may have, dotted."""
    part = Recipe() if part is None else part
    found: list[str] = []
    for item in fields(part):
        value = getattr(part, item.name)
        if is_dataclass(value):
            found += all_keys(value, f"{prefix}{item.name}.")
        else:
            found.append(prefix + item.name)
    return found


def describe_keys() -> list[tuple[str, str, str]]:
    """Every key with its default, as TOML has it, and what it means: the docstring under its field."""
    tree = ast.parse(inspect.getsource(sys.modules[__name__]))
    meanings: dict[tuple[str, str], str] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for item, after in pairwise(node.body):
                if isinstance(item, ast.AnnAssign) and isinstance(after, ast.Expr):
                    name = ast.unparse(item.target)
                    meanings[node.name, name] = " ".join(str(ast.literal_eval(after.value)).split())
    recipe, found = Recipe(), []
    for key in all_keys():
        *parents, name = key.split(".")
        part = getattr(recipe, parents[0]) if parents else recipe
        value = getattr(part, name)
        default = "" if value is None else _toml_value(value)
        found.append((key, default, meanings[type(part).__name__, name]))
    return found


def _nearest(key: str) -> str:
    keys = all_keys()
    near = get_close_matches(key, keys, n=1, cutoff=0.6)
    if not near:  # the right name in the wrong table
        last = key.rpartition(".")[2]
        by_name = {name.rpartition(".")[2]: name for name in keys}
        near = [by_name[name] for name in get_close_matches(last, by_name, n=1, cutoff=0.6)]
    return f": did you mean {near[0]!r}?" if near else ""


def _typed(value: Any, kind: Any, place: str, key: str) -> Any:
    """The value as a field's type says, or a ConfigError."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        kind = next(option for option in inside if option is not type(None))
        return _typed(value, kind, place, key)
    if origin is Literal:
        if value in inside:
            return value
        expected = f"one of {', '.join(inside)}"
    elif origin is list and isinstance(value, list):
        return [_typed(item, inside[0], place, key) for item in value]
    elif origin is dict and isinstance(value, dict):
        return {name: _typed(item, inside[1], place, f"{key}.{name}") for name, item in value.items()}
    elif kind is Any:
        return value
    elif kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif kind in (int, str, bool) and type(value) is kind:
        return value
    else:
        names = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
        expected = names.get(kind, "a list" if origin is list else "a table")
    raise ConfigError(f"{place}: {key} must be {expected}, got {value!r}.")


def _parse_value(text: str) -> Any:
    """A TOML value; what is none is a string without quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # TOML's basic strings are escaped as JSON's are
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_toml_value(k)} = {_toml_value(v)}' for k, v in value.items())}}}"
    return repr(value)


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
        "objective.ratios": objective.ratios,
        "objective.anneal_from": [objective.anneal_from],
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
        "objective.anneal_steps": (objective.anneal_steps, 0),
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
    wanted = 2 if objective.name == "translate" else 1
    if len(data.languages) != wanted:
        refuse(f"objective {objective.name!r} needs {wanted} data.languages, got {data.languages}.")
    for key, sources in (("data.train", data.train), ("data.dev", data.dev)):
        if not sources:
            refuse(f"{key} names no corpus.")
        for source in sources:
            check_source(source)
