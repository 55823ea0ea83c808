"""The objective `language_model`: predict segments from the nuggets of previous ones (the paper's section 6.2).

The encoder is trained together with the decoder, as in the paper, or frozen. In the second case, the nuggets of every
segment are computed once and cached on disk, so that training costs no more than training the decoder alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from textnuggets.data.batching import NumberedBatches
from textnuggets.errors import InputError
from textnuggets.lm.corpus import Place, SegmentCache, TokenStreams, cache_segments
from textnuggets.lm.memory import History
from textnuggets.lm.modeling import NuggetLM
from textnuggets.model.loss import IGNORED
from textnuggets.model.padding import pad
from textnuggets.train.objectives.base import Objective, Step, decoding_step
from textnuggets.train.recipe import Recipe


class Target(NamedTuple):
    """A segment to predict, and the number of previous segments to read."""

    place: Place
    history: int


@dataclass
class SegmentBatches(NumberedBatches[Target]):
    """Batches of random segments; all segments of a batch have histories of the same length."""

    places: Sequence[Place]
    histories: Sequence[int]
    rows: int

    def __post_init__(self) -> None:
        depth = np.array([place.segment for place in self.places])
        order = np.argsort(depth, kind="stable")
        self._order, self._depth = order, depth[order]

    def _batch(self, number: int) -> list[Target]:
        random = np.random.default_rng([self.seed, number])
        drawn = self.histories[int(random.integers(len(self.histories)))]
        first = self.places[int(random.integers(len(self.places)))]
        history = min(first.segment, drawn)
        # Segments with at least `drawn` previous ones, or with exactly as many as the first if it has fewer.
        low = np.searchsorted(self._depth, history, side="left")
        high = len(self._depth) if history == drawn else np.searchsorted(self._depth, history, side="right")
        chosen = self._order[random.integers(low, high, size=self.rows)]
        return [Target(self.places[int(i)], history) for i in chosen]


@dataclass
class Segments(Dataset[dict[str, Any]]):
    """Dataset of target segments with the tokens or the cached nuggets of their histories."""

    streams: TokenStreams
    cache: SegmentCache | None

    def __getitem__(self, target: Target) -> dict[str, Any]:
        text, segment = target.place
        past = [Place(text, number) for number in range(segment - target.history, segment)]
        example: dict[str, Any] = {"ids": self.streams.segment(target.place)}
        if self.cache is None:
            example["context"] = [self.streams.segment(place) for place in past]
        else:
            example["history"] = [self.cache.get(place) for place in past]
        return example


@dataclass
class SegmentCollator:
    """Collates segments into tensors: `input_ids`, `labels`, and `context` or the fields of a `History`."""

    pad_id: int

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """Return the tensors, padded if the last segment of a text is short."""
        ids, mask = pad([example["ids"] for example in examples], self.pad_id)
        tensors = {"input_ids": ids, "labels": ids.masked_fill(~mask, IGNORED)}
        if examples[0].get("context"):
            rows = [np.concatenate(example["context"]) for example in examples]
            tensors["context"] = torch.from_numpy(np.stack(rows).astype(np.int64))
        elif examples[0].get("history"):
            history = History.of([example["history"] for example in examples])
            assert history is not None
            tensors |= history._asdict()
        return tensors


class LanguageModelling(Objective):
    """Prediction of the segments of long texts."""

    def __init__(self, lm: NuggetLM, recipe: Recipe, train: TokenStreams, dev: TokenStreams) -> None:
        super().__init__(lm, recipe, dev)
        objective = recipe.objective
        self.lm = lm
        self.histories = objective.histories or [lm.config.history]
        self.cached = (
            lm.config.memory == "nuggets" and not objective.train_encoder and max(self.histories) > 0
        )
        self.places = _some_texts(train, objective.segments, recipe.seed)
        self.dev_places = _some_texts(dev, recipe.report.documents, recipe.seed)
        self.streams = train
        self.collate = SegmentCollator(lm.pad_id)
        self.dataset = self._segments(train, self.places, recipe.model.ratio)
        self.rows = recipe.optimizer.batch_tokens // lm.config.segment
        # Cached here, before the weights change and while the main process runs ahead of the others.
        self._dev = {ratio: self._segments(dev, self.dev_places, ratio) for ratio in recipe.report_ratios}

    def _segments(self, streams: TokenStreams, places: Sequence[Place], ratio: float) -> Segments:
        if not self.cached:
            return Segments(streams, None)
        # Segments that others follow; they always have the full length.
        read = [place for place in places if place.segment + 1 < streams.counts[place.text]]
        if not read:
            raise InputError(
                f"{streams}: no text is longer than a segment, so there is no history to read. In a .txt file, texts "
                f"start with headings as in WikiText."
            )
        return Segments(streams, cache_segments(self.lm, streams, read, ratio, self.recipe.data.cache))

    def batches(self, process: int, processes: int) -> SegmentBatches:
        """Return batches of as many segments as fit into the token budget."""
        return SegmentBatches(self.places, self.histories, self.rows, **self.division(process, processes))

    def step(
        self, model: nn.Module, inputs: dict[str, Tensor], step: int, count: Any, processes: int
    ) -> Step:
        """Return the negative log-likelihood of the tokens of the segments."""
        labels = inputs["labels"]
        classes = self.sample(labels, step)
        options = {} if self.cached else {"ratio": self.ratio_at(step)}
        outputs = model(**_unflatten(inputs), **options, classes=classes, num_items_in_batch=count)
        return decoding_step(outputs, labels, classes, (labels != IGNORED).sum(), processes)

    def measure(self, model: nn.Module, ratio: float, process: int, processes: int) -> Tensor:
        """Return the exact loss over a fixed set of dev segments, with the longest history of the training."""
        device = next(model.parameters()).device
        totals = torch.zeros(3, device=device)
        most = max(self.histories)
        targets = [Target(place, min(place.segment, most)) for place in self.dev_places][process::processes]
        targets.sort(key=lambda target: target.history)
        with torch.no_grad():
            for batch in _alike(targets, self.rows):
                inputs = self.collate([self._dev[ratio][target] for target in batch])
                inputs = {name: value.to(device) for name, value in inputs.items()}
                options = {} if self.cached else {"ratio": ratio}
                output = model(**_unflatten(inputs), **options, num_items_in_batch=1)
                counted = inputs["labels"] != IGNORED
                correct = (output.logits.argmax(-1) == inputs["labels"])[counted].sum()
                totals += torch.stack([output.loss.float(), correct.float(), counted.sum().float()])
        return totals


def _unflatten(inputs: dict[str, Tensor]) -> dict[str, Any]:
    """Return the inputs with the fields of the history as one `History`: the Trainer only moves plain tensors."""
    parts = {name: inputs[name] for name in History._fields if name in inputs}
    rest: dict[str, Any] = {name: value for name, value in inputs.items() if name not in parts}
    return {**rest, "history": History(**parts)} if parts else rest


def _some_texts(streams: TokenStreams, segments: int, seed: int) -> list[Place]:
    """Return all segments of randomly drawn texts, until there are at least `segments`; 0 takes all texts."""
    order = np.random.default_rng(seed).permutation(len(streams))
    places: list[Place] = []
    for text in order:
        if segments and len(places) >= segments:
            break
        places += [Place(int(text), number) for number in range(int(streams.counts[text]))]
    if not places:
        raise InputError(f"{streams.path}: contains no segment.")
    return places


def _alike(targets: Sequence[Target], size: int) -> Iterator[list[Target]]:
    """Yield batches of consecutive targets with the same length of history."""
    batch: list[Target] = []
    for target in targets:
        if batch and (len(batch) == size or batch[-1].history != target.history):
            yield batch
            batch = []
        batch.append(target)
    if batch:
        yield batch
