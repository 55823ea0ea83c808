"""Tables of a recipe: model, data, objective, optimizer and report.

Every key of a recipe is a field below. The docstring under a field is the key's documentation, from which the table in
`docs/training.md` is generated. Types, bounds and the rules between keys are checked when a recipe is created, before
anything is loaded.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from textnuggets.checks import GatherMode, ResidualMode
from textnuggets.config import DEFAULTS
from textnuggets.data.packed import CACHE
from textnuggets.lm.config import Memory

ObjectiveName = Literal["autoencode", "denoise", "translate", "contrastive", "language_model", "causal"]
Schedule = Literal["constant", "linear", "cosine"]
Precision = Literal["float32", "bfloat16", "float16"]

Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
PositiveCount = Annotated[int, Field(ge=1)]
Ratio = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]

# Objectives that use a setting; with any other objective it must keep its default.
USED_BY: dict[str, tuple[ObjectiveName, ...]] = {
    "delete": ("denoise",),
    "hide": ("autoencode", "denoise", "translate"),
    "sampled_softmax": ("autoencode", "denoise", "translate", "language_model"),
    "query_ratios": ("contrastive",),
    "temperature": ("contrastive",),
    "distill": ("contrastive", "causal"),
    "teacher": ("contrastive",),
    "teacher_ratios": ("contrastive",),
    "dims": ("contrastive",),
    "histories": ("language_model",),
    "segments": ("language_model",),
    "train_encoder": ("language_model",),
}


class Table(BaseModel):
    """Base class of recipes and their tables: strict types, finite numbers and no unknown keys."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )

    def has_default(self, key: str) -> bool:
        """Return whether a key has its default value, set explicitly or not."""
        default = type(self).model_fields[key].get_default(call_default_factory=True)
        return bool(getattr(self, key) == default)


class ModelRecipe(Table):
    """The model to train."""

    backbone: Name | None = None
    """Hub id or folder of the pretrained encoder-decoder; for contrastive, an encoder is enough; for causal, a
    decoder-only model."""
    start: Name | None = None
    """Folder, hub id or shipped name of a trained nugget model to start from instead of a backbone; for
    language_model, also a language model; for causal, an adapter."""
    ratio: Ratio = DEFAULTS["ratio"]
    """Default ratio of the trained model."""
    query_ratio: Ratio | None = None
    """Ratio of queries in search; by default the query ratio of model.start, if any, or model.ratio."""
    scorer_layer: Count = DEFAULTS["scorer_layer"]
    """Encoder layer l whose hidden states are scored."""
    selector: str = DEFAULTS["selector"]
    """Rule that selects the nuggets: learned, spread (learned, one in each of k equal chunks), even (the last token of
    each of k equal chunks), even_content (the last token of each of k chunks of equal content), chunking, sentence_boundary, all_tokens, or mean (TSDAE). If it is not
    set, model.start keeps its selector."""
    gather: GatherMode = DEFAULTS["gather"]
    """Content of a nugget: the selected token, the mean of the segment that ends with it, that mean weighted by content,
    attention over that segment, or both (token and mean)."""
    dim: PositiveCount | None = DEFAULTS["dim"]
    """Dimensions of a nugget, for contrastive; by default the backbone's hidden size. The projection starts as the
    principal components of nuggets of the training documents."""
    residual: ResidualMode = DEFAULTS["residual"]
    """How scores enter cross-attention: add, straight_through or off."""
    feedback: bool = DEFAULTS["feedback"]
    """Whether the layers above l receive an embedding that marks the selected tokens."""
    freeze: bool = DEFAULTS["freeze"]
    """Whether the embeddings and the lowest l layers are frozen."""
    freeze_parts: list[str] = []
    """Names of further modules to freeze, such as "backbone.model.decoder.layers.0"."""
    window: PositiveCount | None = None
    """Tokens that the trained model encodes at once; by default data.max_tokens. Longer texts are split."""
    dropout: Share | None = None
    """Dropout in training; by default the backbone's."""
    source_language: str | None = None
    """Source language code of a multilingual tokenizer, such as "en_XX"."""
    target_language: str | None = None
    """Target language code of a multilingual tokenizer."""
    segment: Annotated[int, Field(ge=2)] = 128
    """language_model, causal: tokens per segment."""
    rank: Count = 16
    """causal: rank of the LoRA weights."""
    history: Count = 8
    """language_model: number of previous segments the model reads."""
    memory: Memory = "nuggets"
    """language_model: what is kept of previous segments: nuggets, tokens (a longer context) or compressive (pooled
    states)."""
    pooled: PositiveCount = 16
    """language_model: number of positions that the compressive memory pools into one."""

    @model_validator(mode="after")
    def _check_origin(self) -> Self:
        if (self.backbone is None) == (self.start is None):
            raise ValueError("set exactly one of model.backbone and model.start.")
        return self

    @property
    def keeps_selector(self) -> bool:
        """Whether `start` keeps its selector, because the recipe does not set one."""
        return self.start is not None and "selector" not in self.model_fields_set


class DataRecipe(Table):
    """The training and dev corpora."""

    train: list[str] = []
    """Training corpora: .txt, .jsonl or .parquet files, folders of them, or hf:name:config:split."""
    dev: list[str] = []
    """Corpora for evaluation during training."""
    languages: list[str] = ["en"]
    """Language of the texts; for translate, the source and the target language."""
    max_tokens: Annotated[int, Field(ge=8)] = 128
    """Maximum number of tokens of a document, including special tokens; sentences are joined up to it."""
    min_tokens: PositiveCount = 2
    """Documents with fewer tokens are skipped."""
    cache: Name = CACHE
    """Folder in which packed documents are stored for later runs."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if self.min_tokens > self.max_tokens:
            raise ValueError(
                f"data.min_tokens ({self.min_tokens}) is above data.max_tokens ({self.max_tokens})."
            )
        return self

    @model_validator(mode="after")
    def _check_corpora(self) -> Self:
        for key in ("train", "dev"):
            if not getattr(self, key):
                raise ValueError(f"data.{key} is empty: name at least one corpus.")
        return self


class ObjectiveRecipe(Table):
    """The training objective."""

    name: ObjectiveName = "autoencode"
    """autoencode (the text itself), denoise (the text from a part of its tokens), translate, contrastive (MaxSim of
    texts that belong together), language_model (segments from the previous ones) or causal (long documents by a
    decoder-only model with nuggets in its cache)."""
    ratios: list[Ratio] = []
    """Ratios from which one is drawn for every step, so that one model serves them all; by default model.ratio."""
    anneal_steps: Count = 0
    """Steps over which the ratio decreases from anneal_from to the drawn one."""
    anneal_from: Ratio = 1.0
    """Ratio of the first step when annealing."""
    delete: Share = 0.0
    """denoise: share of source tokens deleted at random; TSDAE uses 0.6."""
    hide: Share = 0.0
    """Share of the decoder's input tokens that are hidden, so that it has to read the nuggets."""
    sampled_softmax: Count = 0
    """Number of vocabulary entries in the training softmax: the tokens of the batch and random others; 0 uses the whole
    vocabulary. Evaluation is always exact; the training token accuracy is among the sampled entries."""
    query_ratios: list[Ratio] = []
    """contrastive: ratios from which one is drawn for the queries of every step; by default the ratio of the
    documents."""
    temperature: Positive = 0.05
    """contrastive: divisor of the similarities."""
    distill: Annotated[float, Field(ge=0, le=1)] = 0.0
    """contrastive: weight, from 0 to 1, of the distillation loss, which compares rankings with the MaxSim of the
    teacher's token vectors. causal: weight of the divergence from the base with full attention; the next-token loss has
    the rest."""
    distill_temperature: Positive = 0.5
    """contrastive: divisor of the similarities in the distillation loss, after those of each query are standardized."""
    teacher: Name | None = None
    """contrastive: hub id or folder of the teacher, with the tokenizer of the model; by default the initial model."""
    teacher_ratios: Annotated[list[Ratio], Field(min_length=2, max_length=2)] = [1.0, 1.0]
    """contrastive: number of teacher vectors per token of a query and of a document: 1 uses every token, a smaller
    value the means of equal chunks."""
    dims: list[PositiveCount] = []
    """contrastive: numbers of first dimensions that are trained to be used alone (nested vectors), such as
    [128, 64, 32]; by default all dimensions."""
    histories: list[Count] = []
    """language_model: numbers of previous segments from which one is drawn for every step; by default
    model.history."""
    segments: Count = 0
    """language_model: train on whole texts until they have this many segments in total; 0 uses all texts."""
    train_encoder: bool = False
    """language_model: also train the encoder; by default nuggets are computed once and stored in data.cache."""

    @model_validator(mode="after")
    def _check_used(self) -> Self:
        for key, objectives in USED_BY.items():
            if self.name not in objectives and not self.has_default(key):
                raise ValueError(f"objective.{key} cannot be used with the objective {self.name!r}.")
        return self

    @model_validator(mode="after")
    def _check_deletion(self) -> Self:
        if self.name == "denoise" and not self.delete:
            raise ValueError(
                "the objective 'denoise' needs objective.delete, the share of tokens to delete; TSDAE uses 0.6."
            )
        return self

    @model_validator(mode="after")
    def _check_teacher(self) -> Self:
        for key in ("teacher", "teacher_ratios"):
            if not self.distill and not self.has_default(key):
                raise ValueError(f"objective.{key} has no effect while objective.distill is 0.")
        return self

    @model_validator(mode="after")
    def _check_cached_ratio(self) -> Self:
        cached = self.name == "language_model" and not self.train_encoder
        if cached and (self.ratios or self.anneal_steps):
            raise ValueError(
                "cached nuggets have a single ratio: objective.ratios and objective.anneal_steps need "
                "objective.train_encoder = true."
            )
        return self


class OptimizerRecipe(Table):
    """Settings of AdamW."""

    steps: PositiveCount = 10_000
    """Number of weight updates."""
    batch_tokens: PositiveCount = 2048
    """Maximum tokens per batch and process, including padding, counted on the longer side."""
    accumulate: PositiveCount = 1
    """Number of batches whose gradients are accumulated for one update."""
    lr: Positive = 5e-5
    """Peak learning rate."""
    lr_scale: dict[str, NonNegative] = {}
    """Learning rate factors for parts of the model by name, such as {scorer = 3.0}."""
    betas: Annotated[list[Share], Field(min_length=2, max_length=2)] = [0.9, 0.999]
    """Decay rates of AdamW."""
    weight_decay: NonNegative = 0.0
    """Weight decay of AdamW; norms and biases are excluded."""
    clip: NonNegative = 1.0
    """Maximum gradient norm; 0 disables clipping."""
    schedule: Schedule = "linear"
    """Learning rate after warmup: constant, or linear or cosine decay to 0."""
    warmup_steps: Count = 0
    """Steps over which the learning rate rises from 0."""
    precision: Precision = "float32"
    """Mixed precision: float16 on a GPU; bfloat16 on a GPU or on a CPU with native support (AVX-512 BF16, AMX). On
    other CPUs bfloat16 is many times slower than float32."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass to save memory."""

    @model_validator(mode="after")
    def _check_warmup(self) -> Self:
        if self.warmup_steps > self.steps:
            raise ValueError(
                f"optimizer.warmup_steps ({self.warmup_steps}) is above optimizer.steps ({self.steps})."
            )
        return self


class ReportRecipe(Table):
    """Logging, evaluation and checkpoints."""

    log_every: PositiveCount = 10
    """Steps between two lines of metrics.jsonl."""
    evaluate_every: PositiveCount = 500
    """Steps between two evaluations on the dev corpora."""
    documents: PositiveCount = 256
    """Number of dev documents for loss and token accuracy."""
    bleu_documents: Count = 32
    """Number of dev documents that are decoded greedily for BLEU; 0 disables it."""
    ratios: list[Ratio] = []
    """Ratios to evaluate at; by default the training ratios."""
    patience: Count = 0
    """Stop after this many evaluations without a lower dev loss; 0 never stops early."""
    save_every: PositiveCount = 500
    """Steps between two checkpoints."""
    keep: PositiveCount = 2
    """Number of checkpoints to keep, in addition to the best model."""

    @model_validator(mode="after")
    def _check_intervals(self) -> Self:
        # A resumed run could not repeat an average over an interval of which it saw only a part.
        for key in ("save_every", "evaluate_every"):
            if getattr(self, key) % self.log_every:
                raise ValueError(
                    f"report.{key} ({getattr(self, key)}) must be a multiple of report.log_every "
                    f"({self.log_every})."
                )
        return self
