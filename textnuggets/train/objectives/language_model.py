"""The objective `language_model`: predict segments from the nuggets of those before (the paper's section 6.2).

The encoder is trained with the rest, as in the paper, or fixed: then the nuggets of every segment are computed
once and kept on disk, which makes training as cheap as that of the decoder alone.
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
from textnuggets.train.objectives.base import Objective, Step, decoding_step
from textnuggets.train.recipe import Recipe


class Target(NamedTuple):
    """A segment to predict, and how many before it are read."""

    place: Place
    history: int


@dataclass
class SegmentBatches(NumberedBatches[Target]):
    """Segments at random; those of one batch have equally many before them."""

    places: Sequence[Place]
    histories: Sequence[int]
    rows: int
    steps: int
    seed: int
    accumulate: int = 1
    process: int = 0
    processes: int = 1

    def __post_init__(self) -> None:
        depth = np.array([place.segment for place in self.places])
        order = np.argsort(depth, kind="stable")
        self._order, self._depth = order, depth[order]

    def _batch(self, number: int) -> list[Target]:
        random = np.random.default_rng([self.seed, number])
        wanted = self.histories[int(random.integers(len(self.histories)))]
        first = self.places[int(random.integers(len(self.places)))]
        there = min(first.segment, wanted)
        # Those with as many before them, or more if that is all that is wanted.
        low = np.searchsorted(self._depth, there, side="left")
        high = len(self._depth) if there == wanted else np.searchsorted(self._depth, there, side="right")
        chosen = self._order[random.integers(low, high, size=self.rows)]
        return [Target(self.places[int(i)], there) for i in chosen]


@dataclass
class Segments(Dataset[dict[str, Any]]):
    """Targets with what the model is to read of their past."""

    streams: TokenStreams
    cache: SegmentCache | None

    def __getitem__(self, target: Target) -> dict[str, Any]:
        text, segment = target.place
        past = [Place(text, number) for number in range(segment - target.history, segment)]
        found: dict[str, Any] = {"ids": self.streams.segment(target.place)}
        if self.cache is None:
            found["context"] = [self.streams.segment(place) for place in past]
        else:
            found["history"] = [self.cache.get(place) for place in past]
        return found


@dataclass
class SegmentCollator:
    """Segments into tensors: `input_ids`, `labels`, and `context` or the parts of a `History`."""

    pad_id: int

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """Padded where the last segment of a text is short."""
        longest = max(len(example["ids"]) for example in examples)
        ids = torch.full((len(examples), longest), self.pad_id)
        labels = torch.full((len(examples), longest), IGNORED)
        for row, example in enumerate(examples):
            own = torch.from_numpy(example["ids"].astype(np.int64))
            ids[row, : len(own)] = labels[row, : len(own)] = own
        made = {"input_ids": ids, "labels": labels}
        if examples[0].get("context"):
            rows = [np.concatenate(example["context"]) for example in examples]
            made["context"] = torch.from_numpy(np.stack(rows).astype(np.int64))
        elif examples[0].get("history"):
            history = History.of([example["history"] for example in examples])
            assert history is not None
            made |= history._asdict()
        return made


class LanguageModelling(Objective):
    """Segments of long texts, predicted."""

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
        # Now, while the weights are those that others start from, and one process goes first.
        self._dev = {ratio: self._segments(dev, self.dev_places, ratio) for ratio in recipe.report_ratios}

    def _segments(self, streams: TokenStreams, places: Sequence[Place], ratio: float) -> Segments:
        if not self.cached:
            return Segments(streams, None)
        # What something comes after: always a full segment.
        read = [place for place in places if place.segment + 1 < streams.counts[place.text]]
        if not read:
            raise InputError(
                f"{streams}: no text is longer than a segment, so there is no history. Of a .txt file, texts begin "
                f"with headings as in WikiText."
            )
        return Segments(streams, cache_segments(self.lm, streams, read, ratio, self.recipe.data.cache))

    def batches(self, process: int, processes: int) -> SegmentBatches:
        """As many segments as the token budget holds."""
        optimizer = self.recipe.optimizer
        return SegmentBatches(
            self.places, self.histories, self.rows, optimizer.steps, self.recipe.seed, optimizer.accumulate,
            process, processes,
        )  # fmt: skip

    def step(
        self, model: nn.Module, inputs: dict[str, Tensor], step: int, count: Any, processes: int
    ) -> Step:
        """Negative log-likelihood of the segments' tokens."""
        labels = inputs["labels"]
        classes = self.sample(labels, step)
        options = {} if self.cached else {"ratio": self.ratio_at(step)}
        outputs = model(**_unflatten(inputs), **options, classes=classes, num_items_in_batch=count)
        return decoding_step(outputs, labels, classes, (labels != IGNORED).sum(), processes)

    def measure(self, model: nn.Module, ratio: float, process: int, processes: int) -> Tensor:
        """Exact, over the same dev segments each time, with as much history as is trained at most."""
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
    """The parts of a history as one again: the Trainer moves nothing but tensors by name."""
    parts = {name: inputs[name] for name in History._fields if name in inputs}
    rest: dict[str, Any] = {name: value for name, value in inputs.items() if name not in parts}
    return {**rest, "history": History(**parts)} if parts else rest


def _some_texts(streams: TokenStreams, segments: int, seed: int) -> list[Place]:
    """All segments of texts drawn until there are as many as asked for; 0 is all."""
    order = np.random.default_rng(seed).permutation(len(streams))
    places: list[Place] = []
    for text in order:
        if segments and len(places) >= segments:
            break
        places += [Place(int(text), number) for number in range(int(streams.counts[text]))]
    if not places:
        raise InputError(f"{streams.path}: no segment to train on.")
    return places


def _alike(targets: Sequence[Target], size: int) -> Iterator[list[Target]]:
    """Runs of targets with equally many segments before them."""
    batch: list[Target] = []
    for target in targets:
        if batch and (len(batch) == size or batch[-1].history != target.history):
            yield batch
            batch = []
        batch.append(target)
    if batch:
        yield batch
