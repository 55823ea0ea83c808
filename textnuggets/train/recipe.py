"""Recipes: everything that defines a training run, in one TOML file.

A recipe is checked whole before anything is loaded. Every key is a field below, and its docstring is
its documentation; `docs/training.md` is made from them.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from itertools import pairwise
from typing import Any, Literal

from textnuggets.config import GatherMode, ResidualMode
from textnuggets.data.packed import CACHE, PackingSettings
from textnuggets.lm.config import Memory

ObjectiveName = Literal["autoencode", "denoise", "translate", "contrastive", "language_model"]
Schedule = Literal["constant", "linear", "cosine"]
Precision = Literal["float32", "bfloat16", "float16"]


@dataclass
class ModelRecipe:
    """What is trained."""

    backbone: str | None = None
    """Hub id or folder of the encoder-decoder to start from; for contrastive an encoder will do."""
    start: str | None = None
    """Folder, hub id or shipped name of a nugget model to go on from, instead of a backbone; for language_model also of
    a language model."""
    ratio: float = 0.1
    """The ratio the trained model uses unless it is told another."""
    query_ratio: float | None = None
    """That of queries in search; by default that of model.start, else the same."""
    scorer_layer: int = 3
    """The encoder layer l that is scored."""
    selector: str = "learned"
    """Rule that picks the nuggets: learned, spread (learned, one in each of k equal chunks), even_content (the last
    token of each of k chunks of equal content), chunking, sentence_boundary, all_tokens, or mean (TSDAE)."""
    gather: GatherMode = "token"
    """What a nugget is made of: the chosen token, the mean of or attention over the segment it closes, or both
    (token and mean)."""
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
    segment: int = 128
    """language_model: tokens of a segment."""
    history: int = 8
    """language_model: how many segments before the current one are read."""
    memory: Memory = "nuggets"
    """language_model: what is kept of them: nuggets, tokens (a longer context) or compressive (pooled states)."""
    pooled: int = 16
    """language_model: positions that the compressive memory makes into one."""


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
    cache: str = CACHE
    """Where packed documents are kept for the next run."""


@dataclass
class ObjectiveRecipe:
    """What is learned."""

    name: ObjectiveName = "autoencode"
    """autoencode (the text itself), denoise (the text, from a part of it), translate, contrastive (MaxSim of texts
    that belong together) or language_model (segments, from those before)."""
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
    query_ratios: list[float] = field(default_factory=list)
    """contrastive: one of these is drawn for the queries of every step; by default the ratio of the documents."""
    temperature: float = 0.05
    """contrastive: what similarities are divided by."""
    distill: float = 0.0
    """contrastive: the weight, from 0 to 1, of ranking as the MaxSim of the teacher's token vectors does."""
    distill_temperature: float = 0.1
    """contrastive: what similarities are divided by before teacher and model are compared."""
    teacher: str | None = None
    """contrastive: hub id or folder of the teacher; by default the model that is started from, untrained."""
    teacher_ratios: list[float] = field(default_factory=lambda: [1.0, 1.0])
    """contrastive: the teacher's vectors for each token of a query and of a document: 1 is every token, below that the
    means of equal chunks."""
    histories: list[int] = field(default_factory=list)
    """language_model: one of these is drawn for every step, the number of segments that are read; by default
    model.history."""
    segments: int = 0
    """language_model: train on whole texts with so many segments together; 0 is all."""
    train_encoder: bool = False
    """language_model: train the encoder, too; by default nuggets are computed once and kept in data.cache."""


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
    """Mixed precision: float16 on a GPU; bfloat16 on a GPU, or on a CPU that computes in it (AVX-512 BF16, AMX): on
    others it is many times slower than float32."""
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
    def packing(self) -> PackingSettings:
        """How its corpora are packed."""
        return PackingSettings(
            self.data.languages,
            self.data.max_tokens,
            self.data.min_tokens,
            self.data.cache,
            self.model.source_language,
            self.model.target_language,
            self.objective.name == "translate",
        )

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
