"""The objective `contrastive`: mean-MaxSim between the nuggets of texts that belong together (Eq. 10).

The loss has two terms: a contrastive one, which ranks the document of a query above the others in the batch, and a
distillation loss, which compares the ranking with a teacher's, computed from its token vectors or their chunk means. Both are
averaged over nested numbers of dimensions, if the recipe has several. The scores of the selected tokens receive gradients but do not change the values
(straight-through), because an index computes plain MaxSim.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Sampler

from textnuggets.data.batching import Collator
from textnuggets.errors import ConfigError
from textnuggets.model.budget import nugget_count
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.outputs import NuggetOutput
from textnuggets.train.maxsim import Side, similarity
from textnuggets.train.objectives.base import Objective, Step
from textnuggets.train.pairs import DOCUMENT, ArticlePairs, PairCollator
from textnuggets.train.projection import fit_projection
from textnuggets.train.query_pairs import QueryPairs
from textnuggets.train.recipe import Recipe

GROUP = 16  # texts of similar length that are encoded together; sentences and documents differ much in length
FITTED = 1024  # documents whose nuggets determine the initial projection

# -------------------------------------------------------------------- loss


def contrastive_loss(scores: Tensor, temperature: float) -> Tensor:
    """Return the cross-entropy of each query's document, on the diagonal of `(queries, documents)`, summed over queries."""
    right = torch.arange(len(scores), device=scores.device)
    return functional.cross_entropy(scores / temperature, right, reduction="sum")


def distilling_loss(scores: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return the KL divergence, `(...)`, between the student's and the teacher's ranking of documents, `(..., documents)`.

    Both are standardized over documents, because cosines of different models have different means and spreads.
    """
    target = (standardize(teacher) / temperature).log_softmax(-1)
    student = (standardize(scores) / temperature).log_softmax(-1)
    return functional.kl_div(student, target, reduction="none", log_target=True).sum(-1)


def standardize(scores: Tensor) -> Tensor:
    """Return scores with mean 0 and standard deviation 1 over documents, the last dimension."""
    centred = scores - scores.mean(-1, keepdim=True)
    return centred / centred.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-6)


# -------------------------------------------------------------------- objective


class Contrastive(Objective):
    """Contrastive learning of MaxSim between nuggets, with optional distillation from token vectors."""

    accuracy = "accuracy"

    def __init__(
        self,
        model: NuggetModel,
        recipe: Recipe,
        train: ArticlePairs | QueryPairs,
        dev: ArticlePairs | QueryPairs,
        teacher: NuggetModel | None,
    ) -> None:
        super().__init__(model, recipe, dev)
        self.dataset, self.train_pairs, self.dev_pairs = train, train, dev
        self.collate = PairCollator(Collator(model.pad_id))
        self.teacher = teacher
        self.pairs = recipe.optimizer.batch_tokens // (2 * recipe.data.max_tokens)
        self.dims = recipe.objective.dims or [model.dim]
        if max(self.dims) > model.dim:
            raise ConfigError(f"objective.dims is {self.dims}, but nuggets have {model.dim} dimensions.")
        if recipe.model.start is None and recipe.model.dim is not None:
            documents = train.documents(FITTED, recipe.seed)
            documents.sort(key=lambda example: len(example.input_ids))
            collate = self.collate.documents
            fit_projection(
                model, (collate(documents[i : i + GROUP]) for i in range(0, len(documents), GROUP))
            )

    def batches(self, process: int, processes: int) -> Sampler[Any]:
        """Return batches of as many pairs as fit into the token budget if all texts had the maximum length."""
        return self.train_pairs.batches(self.pairs, **self.division(process, processes))

    def query_ratio_at(self, step: int) -> float:
        """Return the ratio of the queries of a step; by default the ratio of the documents."""
        ratios = self.recipe.objective.query_ratios
        if not ratios:
            return self.ratio_at(step)
        return float(ratios[np.random.default_rng([self.recipe.seed, step]).integers(len(ratios))])

    def step(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        step: int,
        count: Any,  # noqa: ARG002
        processes: int,  # noqa: ARG002
    ) -> Step:
        """Return the mean loss over the queries of the batch; negatives come from the same process only."""
        result = self._compare(model, inputs, self.query_ratio_at(step), self.ratio_at(step))
        # The Trainer divides by the number of batches per update.
        return result._replace(loss=result.loss / result.targets)

    def _compare(self, model: nn.Module, inputs: dict[str, Tensor], query_ratio: float, ratio: float) -> Step:
        """Return the loss summed over the queries of the batch."""
        queries = {name: value for name, value in inputs.items() if not name.startswith(DOCUMENT)}
        documents = {
            name.removeprefix(DOCUMENT): value for name, value in inputs.items() if name.startswith(DOCUMENT)
        }
        query, document = encode_side(model, queries, query_ratio), encode_side(model, documents, ratio)
        taught = None
        objective = self.recipe.objective
        if self.teacher is not None:
            self.teacher.to(query.vectors.device)  # type: ignore[arg-type]  # where the Trainer moved the model
            with torch.no_grad():
                teacher_query, teacher_document = (
                    in_chunks(encode_side(self.teacher, side, 1.0), ratio)
                    for side, ratio in zip((queries, documents), objective.teacher_ratios, strict=True)
                )
                taught = similarity(teacher_query, teacher_document)
        losses = []
        for dim in self.dims:
            scores = similarity(first_dimensions(query, dim), first_dimensions(document, dim))
            losses.append(contrastive_loss(scores, objective.temperature))
            if taught is not None:
                distilled = distilling_loss(scores, taught, objective.distill_temperature).sum()
                losses[-1] = (1 - objective.distill) * losses[-1] + objective.distill * distilled
        loss = torch.stack(losses).mean()
        scores = similarity(query, document)
        right = torch.arange(len(scores), device=scores.device)
        return Step(
            loss=loss,
            outputs=scores,
            correct=(scores.detach().argmax(-1) == right).sum(),
            targets=torch.tensor(len(scores), device=scores.device),
            tokens=queries["attention_mask"].sum() + documents["attention_mask"].sum(),
        )

    def measure(self, model: nn.Module, ratio: float, process: int, processes: int) -> Tensor:
        """Return the same loss for a fixed set of pairs of dev documents."""
        device = next(model.parameters()).device
        totals = torch.zeros(3, device=device)
        count = max(1, self.recipe.report.documents // (self.pairs * processes))
        batches = self.dev_pairs.batches(
            self.pairs, steps=count, seed=self.recipe.seed, process=process, processes=processes
        )
        with torch.no_grad():
            for batch in batches:
                inputs = self.collate([self.dev_pairs[pair] for pair in batch])  # type: ignore[index]
                inputs = {name: value.to(device) for name, value in inputs.items()}
                result = self._compare(model, inputs, ratio, ratio)
                totals += torch.stack([result.loss.float(), result.correct.float(), result.targets.float()])
        return totals


def first_dimensions(side: Side, dim: int) -> Side:
    """Return nuggets with only their first dimensions, normalized again."""
    if dim == side.vectors.shape[-1]:
        return side
    return side._replace(vectors=functional.normalize(side.vectors[..., :dim], dim=-1))


def encode_side(model: nn.Module, inputs: dict[str, Tensor], ratio: float) -> Side:
    """Encode texts in groups of similar length, to reduce padding."""
    lengths = inputs["attention_mask"].sum(1)
    order = lengths.argsort(descending=True, stable=True)
    parts: list[Side] = []
    for rows in order.split(GROUP):
        width = int(lengths[rows].max())
        parts.append(
            _side(model(**{name: value[rows, :width] for name, value in inputs.items()}, ratio=ratio))
        )
    most = max(part.kept.shape[1] for part in parts)
    vectors, scores, kept = (
        torch.cat([_widen(value, most) for value in values]) for values in zip(*parts, strict=True)
    )
    back = order.argsort()
    # If every token is selected, there is no selection to learn.
    return Side(vectors[back], (scores.detach() if ratio >= 1 else scores)[back], kept[back])


def in_chunks(side: Side, ratio: float) -> Side:
    """Return the means of k = ceil(n * r) equal chunks of the n vectors of each text; all vectors if the ratio is 1."""
    if ratio >= 1:
        return side
    n = side.kept.sum(1)
    count = nugget_count(n, ratio)
    slots, numbers = (torch.arange(size, device=n.device) for size in (side.kept.shape[1], int(count.max())))
    start, end = ((numbers + i) * n[:, None] // count[:, None] for i in (0, 1))  # (texts, k)
    members = (start[:, :, None] <= slots) & (slots < end[:, :, None]) & side.kept[:, None]  # (texts, k, n)
    vectors = functional.normalize(members.float() @ side.vectors, dim=-1)
    return Side(vectors, vectors.new_zeros(vectors.shape[:2]), numbers < count[:, None])


def _side(output: NuggetOutput) -> Side:
    assert output.nuggets is not None
    assert output.token_scores is not None
    assert output.positions is not None
    assert output.kept is not None
    vectors = functional.normalize(output.nuggets.float(), dim=-1)
    return Side(vectors, output.token_scores.gather(1, output.positions).float(), output.kept)


def _widen(values: Tensor, most: int) -> Tensor:
    """Pad `(texts, k, ...)` with zeros to `most` slots."""
    empty = values.new_zeros(len(values), most - values.shape[1], *values.shape[2:])
    return torch.cat([values, empty], 1)
