"""The objective `contrastive`: of texts that belong together, the nuggets answer each other (mean-MaxSim, Eq. 10).

Two things are learned: to find a query's own document among those of the batch, and to rank them as the token vectors of
a teacher do, each or in chunks, by the whole query and by every part of it. The scores of the chosen tokens take part with a gradient and
without a value (straight through): an index computes plain MaxSim.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from textnuggets.data.batching import Collator
from textnuggets.data.packed import PackedCorpus
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.outputs import NuggetOutput
from textnuggets.model.residual import residual_bias
from textnuggets.model.selection import nugget_count
from textnuggets.train.objectives.base import Objective, Step
from textnuggets.train.pairs import DOCUMENT, PairBatches, PairCollator, Pairs, Records
from textnuggets.train.recipe import Recipe

GROUP = 8  # texts of like length that go through the encoder together: sentences stand beside whole documents

# -------------------------------------------------------------------- the loss


class Side(NamedTuple):
    """The nuggets of the queries or of the documents of a batch."""

    vectors: Tensor  # (texts, k, d) of length 1
    scores: Tensor  # (texts, k)
    kept: Tensor  # (texts, k) False on padding


def answers(query: Side, document: Side) -> Tensor:
    """What each nugget of the queries finds in each document, `(queries, k, documents)`: the highest cosine.

    The score of the nugget that answers takes part straight through: it rises where the answer is right, and falls
    where it is wrong.
    """
    q, d = query.vectors, document.vectors
    cosines = (q.flatten(0, 1) @ d.flatten(0, 1).T).view(*q.shape[:2], *d.shape[:2])
    # (documents, 1, 1, k) -> (documents, k)
    bias = residual_bias(document.scores, document.kept, "straight_through", 1.0, d.dtype)[:, 0, 0]
    best: Tensor = (cosines + bias).amax(-1)
    return best


def similarity(query: Side, document: Side) -> Tensor:
    """Mean-MaxSim of all queries with all documents, `(queries, documents)`.

    Of a query's nuggets, the scores of those rise that find the right document: their weights are equal in value and have
    the gradient of a softmax over the scores.
    """
    soft = query.scores.masked_fill(~query.kept, torch.finfo(query.scores.dtype).min).softmax(-1)
    weights = _equal(query) + soft - soft.detach()
    return (answers(query, document) * weights[:, :, None]).sum(1)


def _equal(side: Side) -> Tensor:
    """`(texts, k)` weights that sum to 1."""
    kept = side.kept.float()
    return kept / kept.sum(1, keepdim=True)


def contrastive_loss(scores: Tensor, temperature: float) -> Tensor:
    """Each query's own document, on the diagonal of `(queries, documents)`, against the others; a sum over queries."""
    right = torch.arange(len(scores), device=scores.device)
    return functional.cross_entropy(scores / temperature, right, reduction="sum")


def distilling_loss(scores: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """How far the ranking of documents, `(..., documents)`, is from the teacher's: KL divergence, `(...)`."""
    wanted = (teacher / temperature).log_softmax(-1)
    found = (scores / temperature).log_softmax(-1)
    return functional.kl_div(found, wanted, reduction="none", log_target=True).sum(-1)


# -------------------------------------------------------------------- the objective


class Contrastive(Objective):
    """Contrastive learning over MaxSim between nuggets, and distillation from all tokens."""

    accuracy = "accuracy"

    def __init__(
        self,
        model: NuggetModel,
        recipe: Recipe,
        train: PackedCorpus,
        dev: PackedCorpus,
        teacher: NuggetModel | None,
    ) -> None:
        super().__init__(model, recipe, dev)
        special = model.tokenizer.all_special_ids
        self.records, self.dev_records = Records(train), Records(dev)
        self.dataset, self.dev_pairs = Pairs(train, special), Pairs(dev, special)
        self.collate = PairCollator(Collator(model.pad_id))
        self.teacher = teacher
        self.pairs = recipe.optimizer.batch_tokens // (2 * recipe.data.max_tokens)

    def batches(self, process: int, processes: int) -> PairBatches:
        """As many pairs as the token budget holds, both sides counted in full."""
        optimizer, seed = self.recipe.optimizer, self.recipe.seed
        return PairBatches(
            self.records, self.pairs, optimizer.steps, seed, optimizer.accumulate, process, processes
        )

    def query_ratio_at(self, step: int) -> float:
        """The ratio of the queries of a step; that of the documents unless the recipe names others."""
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
        """The mean loss over the batch's queries; other documents are those of this process alone."""
        found = self._compare(model, inputs, self.query_ratio_at(step), self.ratio_at(step))
        return found._replace(
            loss=found.loss / found.targets
        )  # the Trainer divides by the batches of an update

    def _compare(self, model: nn.Module, inputs: dict[str, Tensor], query_ratio: float, ratio: float) -> Step:
        """The loss summed over the batch's queries."""
        queries = {name: value for name, value in inputs.items() if not name.startswith(DOCUMENT)}
        documents = {
            name.removeprefix(DOCUMENT): value for name, value in inputs.items() if name.startswith(DOCUMENT)
        }
        query, document = encode_side(model, queries, query_ratio), encode_side(model, documents, ratio)
        scores = similarity(query, document)
        objective = self.recipe.objective
        loss = contrastive_loss(scores, objective.temperature)
        if self.teacher is not None:
            self.teacher.to(scores.device)  # type: ignore[arg-type]  # where the Trainer moved the model
            with torch.no_grad():
                asked, known = (
                    in_chunks(encode_side(self.teacher, side, 1.0), ratio)
                    for side, ratio in zip((queries, documents), objective.teacher_ratios, strict=True)
                )
                by_chunk = answers(asked, known)  # (queries, k, documents)
                weights = _equal(asked)
                whole = (by_chunk * weights[:, :, None]).sum(1)
            by_query = distilling_loss(scores, whole, objective.distill_temperature).sum()
            # The teacher's own query vectors ask the nuggets: each tells what of the document must be found in them.
            each = distilling_loss(answers(asked, document), by_chunk, objective.distill_temperature)
            taught = (by_query + (each * weights).sum()) / 2
            loss = (1 - objective.distill) * loss + objective.distill * taught
        right = torch.arange(len(scores), device=scores.device)
        return Step(
            loss=loss,
            outputs=scores,
            correct=(scores.detach().argmax(-1) == right).sum(),
            targets=torch.tensor(len(scores), device=scores.device),
            tokens=queries["attention_mask"].sum() + documents["attention_mask"].sum(),
        )

    def measure(self, model: nn.Module, ratio: float, process: int, processes: int) -> Tensor:
        """The same loss over pairs of the dev documents, always the same ones."""
        device = next(model.parameters()).device
        totals = torch.zeros(3, device=device)
        count = max(1, self.recipe.report.documents // (self.pairs * processes))
        batches = PairBatches(self.dev_records, self.pairs, count, self.recipe.seed, 1, process, processes)
        with torch.no_grad():
            for batch in batches:
                inputs = self.collate([self.dev_pairs[pair] for pair in batch])
                inputs = {name: value.to(device) for name, value in inputs.items()}
                found = self._compare(model, inputs, ratio, ratio)
                totals += torch.stack([found.loss.float(), found.correct.float(), found.targets.float()])
        return totals


def encode_side(model: nn.Module, inputs: dict[str, Tensor], ratio: float) -> Side:
    """Encode texts, those of like length together, so that little is spent on padding."""
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
    # Where every token is chosen there is no choice to learn.
    return Side(vectors[back], (scores.detach() if ratio >= 1 else scores)[back], kept[back])


def in_chunks(side: Side, ratio: float) -> Side:
    """The means of k = ceil(n * r) equal chunks of a text's n vectors; all of them if the ratio is 1."""
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
    """`(texts, k, ...)` to `most` slots, the new ones empty."""
    empty = values.new_zeros(len(values), most - values.shape[1], *values.shape[2:])
    return torch.cat([values, empty], 1)
