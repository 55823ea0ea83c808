"""The objective `similar`: of texts that belong together, the nuggets answer each other (mean-MaxSim, Eq. 10).

A pair is two views of one document with sentences left out, a sentence and its document, or the lead of
an article and another part of it. A batch holds several documents of an article and of articles like it,
so that telling them apart takes more than the topic. The scores of the chosen tokens take part with a gradient and
without a value (straight through): an index computes plain MaxSim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, Sampler

from textnuggets.model.modeling import NuggetModel
from textnuggets.model.outputs import NuggetOutput
from textnuggets.model.residual import residual_bias
from textnuggets.search.bm25 import BM25
from textnuggets.train.batching import Collator
from textnuggets.train.data import Example, PackedCorpus
from textnuggets.train.objectives import Objective, Step
from textnuggets.train.recipe import Recipe

Kind = Literal["views", "sentence", "lead"]
KINDS: tuple[Kind, ...] = ("views", "views", "sentence", "sentence", "lead")  # drawn with equal chances
PER_RECORD = 4  # documents of one article in a batch
NEAREST = 16  # articles that are known as like an article
LEFT_OUT = 0.3  # the share of sentences a view lacks
DOCUMENT = "document_"  # what the names of the second side's tensors begin with


# -------------------------------------------------------------------- the loss


def similarity(query: NuggetOutput, document: NuggetOutput) -> Tensor:
    """Mean-MaxSim of all queries with all documents, `(queries, documents)`, scores straight through.

    A nugget that answers gets a higher score where that is right and a lower one where it is wrong; of a query's
    nuggets, those that find the right document do.
    """
    assert query.nuggets is not None
    assert document.nuggets is not None
    q, d = (functional.normalize(side.nuggets.float(), dim=-1) for side in (query, document))  # type: ignore[union-attr]
    cosines = q.flatten(0, 1) @ d.flatten(0, 1).T
    cosines = cosines.view(len(q), q.shape[1], len(d), d.shape[1])
    # (documents, 1, 1, k) -> (1, 1, documents, k)
    bias = residual_bias(_scores(document), document.kept, "straight_through", 1.0, d.dtype)  # type: ignore[arg-type]
    best = (cosines + bias[:, 0, 0][None, None]).amax(-1)  # (queries, k, documents)
    return (best * _weights(query)[:, :, None]).sum(1)


def _scores(output: NuggetOutput) -> Tensor:
    assert output.token_scores is not None
    assert output.positions is not None
    return output.token_scores.gather(1, output.positions).float()


def _weights(query: NuggetOutput) -> Tensor:
    """`(queries, k)` equal in value, with the gradient of a softmax over the scores."""
    assert query.kept is not None
    kept = query.kept.float()
    soft = _scores(query).masked_fill(~query.kept, torch.finfo(torch.float32).min).softmax(-1)
    return kept / kept.sum(1, keepdim=True) + soft - soft.detach()


def contrastive_loss(scores: Tensor, teacher: Tensor | None, temperature: float, distill: float) -> Tensor:
    """Each query's own document against the batch's others, and as the teacher ranks them; a sum over queries.

    Args:
        scores: `(queries, documents)`; the right ones stand on the diagonal.
        teacher: The same of a model to learn from.
        temperature: What both are divided by.
        distill: The weight of the teacher's part, from 0 to 1.
    """
    logits = scores / temperature
    right = torch.arange(len(logits), device=logits.device)
    own = functional.cross_entropy(logits, right, reduction="sum")
    if teacher is None:
        return own
    wanted = (teacher / temperature).softmax(-1)
    taught = functional.kl_div(logits.log_softmax(-1), wanted, reduction="sum")
    return (1 - distill) * own + distill * taught


# -------------------------------------------------------------------- pairs


class Pair(NamedTuple):
    """Which pair to make: of which document, how, and from which random numbers."""

    row: int
    partner: int
    """The document the query is made of: the same, or the lead of its article."""
    kind: Kind
    seed: int


class Records:
    """The documents of a corpus by the record, such as an article, they come from, and which records are alike."""

    def __init__(self, corpus: PackedCorpus) -> None:
        numbers = corpus.records
        order = np.argsort(numbers, kind="stable")
        self.rows = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
        leads = [text for text, _ in corpus.texts([int(rows[0]) for rows in self.rows])]
        nearest = BM25(leads).nearest(leads, NEAREST + 1)
        own = np.arange(len(leads))[:, None]
        self.nearest = [near[near != mine] for near, mine in zip(nearest, own, strict=True)]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass
class PairBatches(Sampler[list[Pair]]):
    """Batches of pairs, each of an article and those like it."""

    records: Records
    pairs: int
    steps: int
    seed: int
    accumulate: int = 1
    process: int = 0
    processes: int = 1

    def __len__(self) -> int:
        return self.steps * self.accumulate

    def __iter__(self) -> Iterator[list[Pair]]:
        for number in range(len(self)):
            yield self._batch(number * self.processes + self.process)

    def _batch(self, number: int) -> list[Pair]:
        done, place = divmod(number, len(self.records))
        first = int(np.random.default_rng([self.seed, done]).permutation(len(self.records))[place])
        random = np.random.default_rng([self.seed, 1, number])
        others = random.permutation(len(self.records))
        batch: list[Pair] = []
        seen: set[int] = set()
        for record in (first, *self.records.nearest[first], *others):
            if record in seen:
                continue
            seen.add(int(record))
            rows = self.records.rows[record]
            chosen = random.choice(rows, min(len(rows), PER_RECORD, self.pairs - len(batch)), replace=False)
            for place, row in enumerate(chosen):
                kind = KINDS[random.integers(len(KINDS))]
                if kind == "lead" and (place or row == rows[0]):
                    kind = "views"
                partner = rows[0] if kind == "lead" else row
                batch.append(Pair(int(row), int(partner), kind, int(random.integers(2**31))))
                if kind == "lead":  # which fits all of its article: the others would be wrong to call wrong
                    break
            if len(batch) == self.pairs:
                break
        return batch


@dataclass
class Pairs(Dataset[tuple[Example, Example]]):
    """The texts of pairs, as token ids."""

    corpus: PackedCorpus
    special_ids: Sequence[int]

    def __getitem__(self, pair: Pair) -> tuple[Example, Example]:
        random = np.random.default_rng(pair.seed)
        document = self.corpus[pair.row]
        if pair.kind == "lead":
            return self.corpus[pair.partner], document
        starts = self._sentences(document)
        count = len(starts) - 1
        if pair.kind == "sentence" and count > 1:
            chosen = random.integers(count)
            kept = np.ones(count, dtype=bool)
            kept[chosen] = random.random() < 0.5  # a query is not always found word for word
            return self._only(document, starts, np.arange(count) == chosen), self._only(
                document, starts, kept
            )
        views = []
        for _ in range(2):
            kept = random.random(count) >= LEFT_OUT
            kept[random.integers(count)] = True  # something has to be left
            views.append(self._only(document, starts, kept))
        return views[0], views[1]

    def _sentences(self, example: Example) -> np.ndarray:
        """Where sentences begin, and where the last one ends; special tokens around them are in none."""
        (ordinary,) = np.nonzero(~np.isin(example.input_ids, self.special_ids))
        if not len(ordinary):
            return np.array([0, len(example.input_ids)])
        ends = example.sentence_ends[example.sentence_ends < ordinary[-1]] + 1
        return np.array([ordinary[0], *ends, ordinary[-1] + 1])

    def _only(self, example: Example, starts: np.ndarray, kept: np.ndarray) -> Example:
        """A document without some of its sentences."""
        tokens = np.ones(len(example.input_ids), dtype=bool)
        for start, end, keep in zip(starts[:-1], starts[1:], kept, strict=True):
            tokens[start:end] = keep
        place = np.cumsum(tokens) - 1
        ends = place[example.sentence_ends[tokens[example.sentence_ends]]]
        ids = example.input_ids[tokens]
        return Example(ids, ids, ends)


@dataclass
class PairCollator:
    """Pairs into padded tensors; the documents' names begin with `document_`."""

    collate: Collator

    def __call__(self, pairs: Sequence[tuple[Example, Example]]) -> dict[str, Any]:
        """Both sides as `Collator` makes them, without labels."""
        queries, documents = zip(*pairs, strict=True)
        made = self.collate(queries)
        made |= {DOCUMENT + name: value for name, value in self.collate(documents).items()}
        return {name: value for name, value in made.items() if not name.endswith("labels")}


# -------------------------------------------------------------------- the objective


class Similar(Objective):
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
        scores = similarity(model(**queries, ratio=query_ratio), model(**documents, ratio=ratio))
        taught = None
        if self.teacher is not None:
            self.teacher.to(scores.device)  # type: ignore[arg-type]  # where the Trainer moved the model
            with torch.no_grad():
                taught = similarity(self.teacher(**queries), self.teacher(**documents))
        objective = self.recipe.objective
        loss = contrastive_loss(scores, taught, objective.temperature, objective.distill)
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
