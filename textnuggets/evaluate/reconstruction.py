"""Reconstruction: BLEU of texts decoded from their nuggets, by ratio (section 5.1 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textnuggets.analysis.bleu import Bleu
from textnuggets.analysis.teacher_forcing import TeacherForced
from textnuggets.checks import ResidualMode
from textnuggets.data.batching import Collator
from textnuggets.data.packed import PackedCorpus
from textnuggets.errors import BackboneError
from textnuggets.evaluate.details import CAPITALIZED, NUMBER, share_kept
from textnuggets.evaluate.provenance import provenance
from textnuggets.evaluate.sample import Sample
from textnuggets.evaluate.stats import bootstrap
from textnuggets.io.progress import Progress
from textnuggets.model.modeling import NuggetModel

BATCH = 16  # documents decoded together
ONE_VECTOR = 1e-6  # a ratio so small that each window keeps one vector


@dataclass
class WithoutScores:
    """Quality when the scores are not added to cross-attention: s is ablated at inference (section 3.2)."""

    bleu: float
    loss: float | None
    change_interval: tuple[float, float] | None
    """95% bootstrap interval of the change of BLEU, paired by document; None for a single document."""


@dataclass
class Fidelity:
    """Reconstruction quality at one ratio and document length."""

    ratio: float
    """Compression ratio; 0 is a single vector per window, as in the paper's figure."""
    max_tokens: int
    """Maximum number of tokens per document."""
    bleu: float
    """Micro-averaged BLEU of the decoded texts, by sacrebleu."""
    bleu_interval: tuple[float, float] | None
    """95% bootstrap interval of `bleu` over documents; None for a single document."""
    rise_interval: tuple[float, float] | None
    """The same of the rise of BLEU from this ratio to the largest, paired by document; None for the largest."""
    exact: float
    """Share of documents that are reconstructed exactly."""
    numbers: float | None
    """Share of the numbers of the references that occur in the decoded texts; None if there are none."""
    capitalized: float | None
    """The same of capitalized words, such as names."""
    token_accuracy: float | None
    """Share of tokens predicted correctly under teacher forcing; None for documents longer than the window, which the
    model reads in parts."""
    loss: float | None
    """Negative log-likelihood per token in nats; None in the same case."""
    documents: int
    tokens: int
    vectors: int
    without_scores: WithoutScores | None = None
    """The same without scores; None for other ratios than the one nearest to the model's, and for models that add no
    scores to cross-attention."""


class Measured(NamedTuple):
    """Quality at one ratio, and the counts behind the BLEU of each document."""

    fidelity: Fidelity
    counts: NDArray[Any]


def evaluate_reconstruction(
    model: NuggetModel,
    sample: Sample,
    ratios: Sequence[float],
    beams: int = 5,
    lengths: Sequence[int] = (128,),
) -> dict[str, Any]:
    """Decode packed documents from their nuggets and compare them with the originals.

    Args:
        model: Nugget model with a decoder.
        sample: Documents to measure. An autoencoder, in one language, is compared with its input; a translation
            model, in two, with the reference.
        ratios: Compression ratios; 0 is a single vector.
        beams: Beam width; 5 in the paper.
        lengths: Maximum numbers of tokens per document.
    """
    bleu = Bleu(language=sample.languages[-1])
    if not model.can_decode:
        raise BackboneError(
            f"a {model.adapter.config.model_type} backbone has no decoder to reconstruct with."
        )
    found: list[Fidelity] = []
    ablated = _ablated_ratio(model, ratios)
    passes = len(ratios) + (ablated is not None)
    with Progress("reconstruct", total=len(lengths) * passes * sample.documents) as progress:
        for length in lengths:
            corpus, rows = sample.draw(model, length)

            def measure(ratio: float, residual: ResidualMode | None = None) -> Measured:
                return _measure(model, corpus, rows, ratio, length, beams, bleu, progress, residual)  # noqa: B023

            measured = [measure(ratio) for ratio in ratios]
            found += _with_intervals(
                measured, None if ablated is None else measure(ablated, "off"), bleu, sample.seed
            )
    return {
        "question": "reconstruction",
        "settings": {"beams": beams, "languages": list(sample.languages), "bleu": bleu.signature},
        **provenance(model, sample),
        "results": [asdict(item) for item in found],
    }


def _ablated_ratio(model: NuggetModel, ratios: Sequence[float]) -> float | None:
    """Return the ratio at which the scores are ablated; attention over a single vector does not depend on them."""
    if model.scorer is None or model.config.residual != "add":
        return None
    return min(filter(None, ratios), key=lambda ratio: abs(ratio - model.config.ratio), default=None)


def _measure(
    model: NuggetModel,
    corpus: PackedCorpus,
    rows: Sequence[int],
    ratio: float,
    length: int,
    beams: int,
    bleu: Bleu,
    progress: Progress,
    residual: ResidualMode | None,
) -> Measured:
    """Measure one ratio on documents of one length, with the model's residual mode or another one."""
    budget: dict[str, Any] = {"ratio": ratio or ONE_VECTOR}
    accuracy = loss = None
    if length <= model.window:
        with model.evaluating():
            forced = TeacherForced.of(
                model, corpus, rows, {**budget, "residual": residual}, Collator(model.pad_id), BATCH * length
            )
        accuracy, loss = float(forced.correct / forced.targets), float(forced.loss / forced.targets)
    pairs = corpus.texts(rows)
    decoded: list[str] = []
    tokens = vectors = 0
    for start in range(0, len(pairs), BATCH):
        sources = [source for source, _ in pairs[start : start + BATCH]]
        nuggets = model.encode(sources, batch_size=BATCH, **budget)
        vectors += sum(len(item) for item in nuggets)
        tokens += sum(item.token_count for item in nuggets)
        decoded += model.reconstruct(nuggets, num_beams=beams, batch_size=BATCH, residual=residual)
        progress.add(len(nuggets))
    references = [target for _, target in pairs]
    counts = [bleu.counts(text, target) for text, target in zip(decoded, references, strict=True)]
    measured = Fidelity(
        ratio=ratio,
        max_tokens=length,
        bleu=bleu.corpus(decoded, references),
        bleu_interval=None,
        rise_interval=None,
        exact=sum(a == b for a, b in zip(decoded, references, strict=True)) / len(pairs),
        numbers=share_kept(NUMBER, decoded, references),
        capitalized=share_kept(CAPITALIZED, decoded, references),
        token_accuracy=accuracy,
        loss=loss,
        documents=len(pairs),
        tokens=tokens,
        vectors=vectors,
    )
    return Measured(measured, np.array(counts))


def _with_intervals(
    measured: Sequence[Measured], ablated: Measured | None, bleu: Bleu, seed: int
) -> list[Fidelity]:
    """Add the ablation and bootstrap intervals over documents to the ratios of one length."""

    def corpus_bleu(drawn: NDArray[Any]) -> NDArray[np.float64]:
        return np.array([bleu.of_counts(sums) for sums in drawn.sum(1).tolist()])

    def rise(drawn: NDArray[Any]) -> NDArray[np.float64]:
        return corpus_bleu(drawn[:, :, 1]) - corpus_bleu(drawn[:, :, 0])

    def rise_interval(before: Measured, after: Measured) -> tuple[float, float] | None:
        if len(before.counts) < 2:
            return None
        return bootstrap(np.stack([before.counts, after.counts], axis=1), rise, seed)

    largest = max(measured, key=lambda item: item.fidelity.ratio)
    for item in measured:
        fidelity = item.fidelity
        if len(item.counts) > 1:
            fidelity.bleu_interval = bootstrap(item.counts, corpus_bleu, seed)
        if fidelity.ratio < largest.fidelity.ratio:
            fidelity.rise_interval = rise_interval(item, largest)
        if ablated is not None and fidelity.ratio == ablated.fidelity.ratio:
            off = ablated.fidelity
            fidelity.without_scores = WithoutScores(off.bleu, off.loss, rise_interval(item, ablated))
    return [item.fidelity for item in measured]


def to_markdown(results: dict[str, Any]) -> str:
    """Format the results as a Markdown table."""
    rows = [
        "| r | tokens up to | BLEU | exact | numbers | capitalized words | token accuracy | vectors / tokens |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for item in sorted(results["results"], key=lambda item: (item["max_tokens"], item["ratio"])):
        ratio = f"{item['ratio']:g}" if item["ratio"] else "one vector"
        # Results of earlier versions have no shares of numbers and capitalized words.
        shares = [item.get(key) for key in ("exact", "numbers", "capitalized", "token_accuracy")]
        shown = " | ".join("-" if share is None else f"{share:.1%}" for share in shares)
        rows.append(
            f"| {ratio} | {item['max_tokens']} | {item['bleu']:.1f} | {shown} | "
            f"{item['vectors']:,} / {item['tokens']:,} |"
        )
    data = ", ".join(item["source"] for item in results["data"])
    count, beams = results["results"][0]["documents"], results["settings"]["beams"]
    for item in results["results"]:
        if (off := item.get("without_scores")) is not None:  # results of earlier versions have no such key
            losses = "" if off["loss"] is None else f", loss {off['loss']:.2f} instead of {item['loss']:.2f}"
            rows += [
                "",
                f"Without scores in cross-attention, r = {item['ratio']:g}, up to {item['max_tokens']} tokens: BLEU "
                f"{off['bleu']:.1f} instead of {item['bleu']:.1f}{losses}.",
            ]
    rows += ["", f"{data}: {count} documents of each length, {beams} {'beams' if beams > 1 else 'beam'}."]
    return "\n".join(rows) + "\n"
