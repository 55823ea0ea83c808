"""Encoding to a target fidelity: the ratio is raised until the reconstruction reaches a BLEU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from textnuggets.analysis.bleu import Bleu
from textnuggets.checks import check_ratio
from textnuggets.errors import ConfigError
from textnuggets.io.parquet import read_table
from textnuggets.io.progress import Progress
from textnuggets.model.coverage import Coverage, collecting, one_warning
from textnuggets.model.interface import TextInterface
from textnuggets.model.nuggets import Nuggets

LADDER = (0.05, 0.1, 0.15, 0.2, 0.25, 0.35, 0.5, 0.75, 1.0)


class Faithful(NamedTuple):
    """The nuggets of a text, their ratio and the fidelity of their reconstruction."""

    nuggets: Nuggets
    ratio: float
    fidelity: float
    """Sentence BLEU of the greedy reconstruction, from 0 to 1."""


def encode_to_fidelity(
    model: TextInterface,
    texts: Sequence[str],
    fidelity: float,
    batch_size: int = 32,
    dtype: str = "float32",
    progress: Progress | None = None,
) -> list[Faithful]:
    """Encode each text at the lowest ratio of `LADDER` whose reconstruction reaches the fidelity.

    A text that never reaches it gets the nuggets of its best ratio; `fidelity` of the result has the BLEU.

    Args:
        model: Nugget model with a decoder.
        texts: Texts to encode.
        fidelity: BLEU to reach, from 0 to 1.
        batch_size: Number of windows encoded together.
        dtype: Data type of the vectors; fidelity is measured after conversion to it.
        progress: Advanced by one for each finished text.
    """
    check_fidelity(model, fidelity)
    best: dict[int, Faithful] = {}
    pending = list(range(len(texts)))
    for ratio in LADDER:
        if not pending:
            break
        # Count unknown languages and characters once, not at every ratio.
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
    model: TextInterface, texts: Sequence[str], ratio: float, batch_size: int = 32, dtype: str = "float32"
) -> list[Faithful]:
    """Encode texts at one ratio, decode them greedily and measure the fidelity."""
    bleu = Bleu("a fidelity", effective_order=True)
    nuggets = model.encode(list(texts), ratio=ratio, batch_size=batch_size, dtype=dtype)
    decoded = model.reconstruct(nuggets, num_beams=1, batch_size=batch_size)
    return [
        Faithful(item, ratio, 1.0 if back == text else bleu.sentence(back, text) / 100)
        for item, text, back in zip(nuggets, texts, decoded, strict=True)
    ]


def check_fidelity(model: TextInterface, fidelity: float) -> float:
    """Return the fidelity; raise ConfigError if it is out of range or the model cannot measure it."""
    try:
        check_ratio(fidelity)
    except ConfigError as error:
        raise ConfigError(f"fidelity must be a BLEU in (0, 1], got {fidelity!r}.") from error
    if not model.can_decode:
        raise ConfigError(f"fidelity needs a decoder, but a {model.architecture} backbone has no decoder.")
    if not model.selector.counts:
        raise ConfigError(
            f"fidelity needs a ratio to raise, but the selector {model.selector.name!r} takes no ratio."
        )
    return fidelity


class Shortfall(NamedTuple):
    """Summary of the texts that did not reach the requested fidelity."""

    wanted: float
    texts: int
    """Number of texts."""
    below: int
    """Number of texts that did not reach it."""
    mean: float
    """Mean BLEU of the texts below, from 0 to 1."""
    worst: float
    """Lowest BLEU, from 0 to 1."""
    worst_id: str

    def message(self) -> str:
        """Return a one-line summary for the user."""
        return (
            f"fidelity {self.wanted} was not reached by {self.below:,} of {self.texts:,} texts: these reach "
            f"{self.mean:.2f} on average, the worst ({self.worst_id!r}) {self.worst:.2f}; "
            f"the column 'fidelity' has the value of each."
        )


def find_shortfall(files: Sequence[Path], wanted: float) -> Shortfall | None:
    """Return a summary of the texts in finished nugget files below a fidelity; None if all reach it."""
    texts = 0
    below: list[tuple[float, str]] = []
    for path in files:
        table = read_table(path, columns=["id", "fidelity"])
        texts += len(table)
        rows = zip(table["fidelity"].to_pylist(), table["id"].to_pylist(), strict=True)
        below += [(reached, name) for reached, name in rows if reached < wanted]
    if not below:
        return None
    worst, worst_id = min(below)
    mean = sum(reached for reached, _ in below) / len(below)
    return Shortfall(wanted, texts, len(below), mean, worst, worst_id)
