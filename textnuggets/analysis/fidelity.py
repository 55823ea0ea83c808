"""As many nuggets as a text needs: raised until its own reconstruction is as faithful as asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from textnuggets.config import check_ratio
from textnuggets.errors import ConfigError, MissingExtraError
from textnuggets.io.progress import Progress
from textnuggets.model.coverage import Coverage, collecting, one_warning
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.nuggets import Nuggets

LADDER = (0.05, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 0.75, 1.0)


class Faithful(NamedTuple):
    """A text's nuggets, the ratio they were taken at, and how well they decode."""

    nuggets: Nuggets
    ratio: float
    fidelity: float
    """Sentence BLEU of the greedy reconstruction, from 0 to 1."""


def encode_to_fidelity(
    model: NuggetModel,
    texts: Sequence[str],
    fidelity: float,
    batch_size: int = 32,
    dtype: str = "float32",
    progress: Progress | None = None,
) -> list[Faithful]:
    """Encode each text at the lowest ratio of a ladder from which it comes back faithfully enough.

    A text that never does keeps the nuggets that came closest; its `fidelity` says how close.

    Args:
        model: A nugget model with a decoder.
        texts: The texts.
        fidelity: The BLEU to reach, from 0 to 1.
        batch_size: Windows that go through the model together.
        dtype: Of the vectors; what is stored is what is measured.
        progress: Told of each text that is done.
    """
    check_fidelity(model, fidelity)
    best: dict[int, Faithful] = {}
    pending = list(range(len(texts)))
    for ratio in LADDER:
        if not pending:
            break
        # What the model does not know of a text is counted once, not at every ratio.
        with one_warning() if ratio == LADDER[0] else collecting(Coverage()):
            found = encode_and_measure(model, [texts[i] for i in pending], ratio, batch_size, dtype)
        for i, item in zip(pending, found, strict=True):
            if i not in best or item.fidelity > best[i].fidelity:
                best[i] = item
        left = [i for i in pending if best[i].fidelity < fidelity]
        if progress is not None:
            progress.add(len(pending) - len(left) if ratio < LADDER[-1] else len(pending))
        pending = left
    return [best[i] for i in range(len(texts))]


def encode_and_measure(
    model: NuggetModel, texts: Sequence[str], ratio: float, batch_size: int = 32, dtype: str = "float32"
) -> list[Faithful]:
    """Encode texts at one ratio, decode them greedily and compare."""
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise MissingExtraError("sacrebleu", "evaluate", "a fidelity") from error
    bleu = BLEU(effective_order=True)  # what sacrebleu recommends for single sentences
    nuggets = model.encode(list(texts), ratio=ratio, batch_size=batch_size, dtype=dtype)
    decoded = model.reconstruct(nuggets, num_beams=1, batch_size=batch_size)
    return [
        Faithful(item, ratio, 1.0 if back == text else bleu.sentence_score(back, [text]).score / 100)
        for item, text, back in zip(nuggets, texts, decoded, strict=True)
    ]


def check_fidelity(model: NuggetModel, fidelity: float) -> float:
    """Whether a fidelity can be asked of a model, before anything is encoded."""
    try:
        check_ratio(fidelity)
    except ConfigError as error:
        raise ConfigError(f"fidelity is a BLEU in (0, 1], got {fidelity!r}.") from error
    if not model.can_decode:
        raise ConfigError(
            f"a {model.adapter.config.model_type} backbone has no decoder to measure fidelity with."
        )
    if not model.selector.counts:
        raise ConfigError(f"the selector {model.selector.name!r} takes no ratio that could be raised.")
    return fidelity


class Shortfall(NamedTuple):
    """Texts of a run that do not come back as faithfully as asked."""

    wanted: float
    texts: int
    """Of how many texts."""
    below: int
    """How many of them do not reach it."""
    mean: float
    worst: float
    """BLEU of those, from 0 to 1."""
    worst_id: str

    def message(self) -> str:
        """Return what a user should know."""
        return (
            f"fidelity {self.wanted} was not reached by {self.below:,} of {self.texts:,} texts: they reach "
            f"{self.mean:.2f} on average, the worst ({self.worst_id!r}) {self.worst:.2f}; "
            f"the column 'fidelity' has the figure of each."
        )


def find_shortfall(files: Sequence[Path], wanted: float) -> Shortfall | None:
    """Return how far the texts of finished nugget files are from a fidelity, None if all reach it."""
    texts = 0
    below: list[tuple[float, str]] = []
    for path in files:
        table = pq.read_table(path, columns=["id", "fidelity"])
        texts += len(table)
        rows = zip(table["fidelity"].to_pylist(), table["id"].to_pylist(), strict=True)
        below += [(reached, name) for reached, name in rows if reached < wanted]
    if not below:
        return None
    worst, worst_id = min(below)
    mean = sum(reached for reached, _ in below) / len(below)
    return Shortfall(wanted, texts, len(below), mean, worst, worst_id)
