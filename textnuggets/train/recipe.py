"""Recipes: all settings of a training run, and the rules between their tables."""

from __future__ import annotations

import json
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from textnuggets.data.packed import PackingSettings
from textnuggets.train.tables import (
    DataRecipe,
    ModelRecipe,
    ObjectiveRecipe,
    OptimizerRecipe,
    ReportRecipe,
    Table,
)


class Recipe(Table):
    """All settings of a training run."""

    model: ModelRecipe
    data: DataRecipe
    objective: ObjectiveRecipe = Field(default_factory=ObjectiveRecipe)
    optimizer: OptimizerRecipe = Field(default_factory=OptimizerRecipe)
    report: ReportRecipe = Field(default_factory=ReportRecipe)
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of all random numbers."""
    trainer: dict[str, Any] = Field(default_factory=dict)
    """Further settings of Hugging Face's TrainingArguments, such as fsdp or torch_compile."""

    @model_validator(mode="after")
    def _check_languages(self) -> Self:
        count, languages = (2 if self.objective.name == "translate" else 1), self.data.languages
        if len(languages) != count:
            raise ValueError(
                f"the objective {self.objective.name!r} needs {count} data.languages, got {languages}."
            )
        return self

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        if self.model.window is not None and self.model.window < self.data.max_tokens:
            raise ValueError(
                f"model.window ({self.model.window}) is below data.max_tokens ({self.data.max_tokens})."
            )
        return self

    @model_validator(mode="after")
    def _check_batch_size(self) -> Self:
        needed, content = self._smallest_batch()
        if self.optimizer.batch_tokens < needed:
            raise ValueError(
                f"optimizer.batch_tokens ({self.optimizer.batch_tokens}) must be at least {needed}, to hold {content}."
            )
        return self

    def _smallest_batch(self) -> tuple[int, str]:
        """Return the minimum of `optimizer.batch_tokens`, and what must fit into a batch."""
        max_tokens, segment = self.data.max_tokens, self.model.segment
        if self.objective.name == "contrastive":  # a single pair has no negatives
            return 4 * max_tokens, f"two pairs of documents of data.max_tokens ({max_tokens}) each"
        if self.objective.name == "language_model" and segment > max_tokens:
            return segment, f"a segment of model.segment ({segment})"
        return max_tokens, f"a document of data.max_tokens ({max_tokens})"

    @model_validator(mode="after")
    def _check_language_model(self) -> Self:
        if self.objective.name != "language_model":
            return self
        if self.model.start is None:
            raise ValueError("a language model starts from a trained nugget model: set model.start.")
        if self.model.window is not None:
            raise ValueError(
                "model.window cannot be used with the objective 'language_model': set model.segment."
            )
        if self.optimizer.gradient_checkpointing:
            raise ValueError(
                "optimizer.gradient_checkpointing cannot be used with the objective 'language_model'."
            )
        return self

    @model_validator(mode="after")
    def _check_causal(self) -> Self:
        if self.objective.name != "causal":
            return self
        if self.model.window is not None:
            raise ValueError("model.window cannot be used with the objective 'causal': set data.max_tokens.")
        if self.data.max_tokens < 2 * self.model.segment + 2:
            raise ValueError(
                f"data.max_tokens ({self.data.max_tokens}) must be above two segments of model.segment "
                f"({self.model.segment}), or nothing is compressed."
            )
        if self.optimizer.gradient_checkpointing:
            raise ValueError("optimizer.gradient_checkpointing cannot be used with the objective 'causal'.")
        return self

    @model_validator(mode="after")
    def _check_histories(self) -> Self:
        if max(self.objective.histories, default=0) > self.model.history:
            raise ValueError(
                f"objective.histories ({self.objective.histories}) must not exceed model.history "
                f"({self.model.history})."
            )
        return self

    @model_validator(mode="after")
    def _check_encoder(self) -> Self:
        if self.objective.train_encoder and self.model.memory != "nuggets":
            raise ValueError(
                f"objective.train_encoder needs model.memory = 'nuggets': {self.model.memory!r} has no encoder."
            )
        return self

    @property
    def ratios(self) -> list[float]:
        """Ratios that training draws from."""
        return self.objective.ratios or [self.model.ratio]

    @property
    def packing(self) -> PackingSettings:
        """Settings for packing the corpora."""
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
        """Ratios at which the model is evaluated."""
        return list(dict.fromkeys(self.report.ratios or self.ratios))

    def to_toml(self) -> str:
        """Return the recipe as TOML with the values of all keys."""
        tables = self.model_dump()
        if self.model.keeps_selector:
            del tables["model"]["selector"]  # or it would be set explicitly when the file is read
        lines = [
            f"{key} = {toml_value(value)}" for key, value in tables.items() if not isinstance(value, dict)
        ]
        for name, table in tables.items():
            if isinstance(table, dict) and table:
                lines += ["", f"[{name}]"]
                lines += [f"{key} = {toml_value(value)}" for key, value in table.items() if value is not None]
        return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    """Return a value in TOML syntax."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # TOML's basic strings have the escapes of JSON
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{toml_value(k)} = {toml_value(v)}' for k, v in value.items())}}}"
    return repr(value)
