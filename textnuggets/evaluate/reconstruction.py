"""How much of a text its nuggets keep: BLEU of the decoded text, by ratio (the paper's section 5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from textnuggets.analysis.bleu import Bleu
from textnuggets.analysis.teacher_forcing import TeacherForced
from textnuggets.data.batching import Collator
from textnuggets.data.packed import CACHE, PackedCorpus
from textnuggets.errors import BackboneError
from textnuggets.evaluate.provenance import draw_documents, provenance
from textnuggets.io.progress import Progress
from textnuggets.model.modeling import NuggetModel

BATCH = 16  # documents decoded together
ONE_VECTOR = 1e-6  # so small a ratio leaves a window one vector


@dataclass
class Fidelity:
    """What came back at one ratio."""

    ratio: float
    """0 stands for a single vector, as in the paper's figure; of a text longer than the model's window, one a window."""
    max_tokens: int
    """How long the documents are at most."""
    bleu: float
    """Micro-averaged BLEU of the decoded texts, by sacrebleu."""
    exact: float
    """The share of documents that came back to the letter."""
    token_accuracy: float | None
    """The share of tokens that are predicted right when those before them are given. Documents that may be longer
    than the window, which the model never reads at once, have none."""
    loss: float | None
    """Negative log-likelihood of a token, in nats; likewise."""
    documents: int
    tokens: int
    vectors: int


def evaluate_reconstruction(
    model: NuggetModel,
    sources: Sequence[str],
    ratios: Sequence[float],
    beams: int = 5,
    documents: int = 200,
    lengths: Sequence[int] = (128,),
    languages: Sequence[str] = ("en",),
    seed: int = 0,
    cache: str = CACHE,
) -> dict[str, Any]:
    """Decode packed documents from their nuggets and compare.

    Args:
        model: A nugget model with a decoder.
        sources: Corpora, as for training.
        ratios: Compression ratios; 0 is a single vector.
        beams: Beam width; the paper's is 5.
        documents: How many are drawn of each length.
        lengths: How many tokens the documents have at most; adjacent sentences are joined up to it.
        languages: One for an autoencoder, which is compared with its input; two, source and target, for a
            translation model, which is compared with the reference.
        seed: Decides which documents are drawn.
        cache: Where packed documents are kept.
    """
    bleu = Bleu(language=languages[-1])
    if not model.can_decode:
        raise BackboneError(
            f"a {model.adapter.config.model_type} backbone has no decoder to reconstruct with."
        )
    found: list[Fidelity] = []
    with Progress("reconstruct", total=len(lengths) * len(ratios) * documents) as progress:
        for length in lengths:
            corpus, rows = draw_documents(model, sources, length, documents, seed, languages, cache)
            for ratio in ratios:
                found.append(_measure(model, corpus, rows, ratio, length, beams, bleu, progress))
    return {
        "question": "reconstruction",
        "settings": {"beams": beams, "languages": list(languages), "bleu": bleu.signature},
        **provenance(model, sources, seed),
        "results": [asdict(item) for item in found],
    }


def _measure(
    model: NuggetModel,
    corpus: PackedCorpus,
    rows: Sequence[int],
    ratio: float,
    length: int,
    beams: int,
    bleu: Bleu,
    progress: Progress,
) -> Fidelity:
    budget: dict[str, Any] = {"ratio": ratio or ONE_VECTOR}
    accuracy = loss = None
    if length <= model.window:
        with model.evaluating():
            forced = TeacherForced.of(model, corpus, rows, budget, Collator(model.pad_id), BATCH * length)
        accuracy, loss = float(forced.correct / forced.targets), float(forced.loss / forced.targets)
    pairs = corpus.texts(rows)
    decoded: list[str] = []
    tokens = vectors = 0
    for start in range(0, len(pairs), BATCH):
        sources = [source for source, _ in pairs[start : start + BATCH]]
        nuggets = model.encode(sources, batch_size=BATCH, **budget)
        vectors += sum(len(item) for item in nuggets)
        tokens += sum(item.token_count for item in nuggets)
        decoded += model.reconstruct(nuggets, num_beams=beams, batch_size=BATCH)
        progress.add(len(nuggets))
    references = [target for _, target in pairs]
    return Fidelity(
        ratio=ratio,
        max_tokens=length,
        bleu=bleu.corpus(decoded, references),
        exact=sum(a == b for a, b in zip(decoded, references, strict=True)) / len(pairs),
        token_accuracy=accuracy,
        loss=loss,
        documents=len(pairs),
        tokens=tokens,
        vectors=vectors,
    )


def to_markdown(results: dict[str, Any]) -> str:
    """The results as a table."""
    rows = [
        "| r | tokens up to | BLEU | exact | token accuracy | vectors / tokens |",
        "|---|---|---|---|---|---|",
    ]
    for item in sorted(results["results"], key=lambda item: (item["max_tokens"], item["ratio"])):
        ratio = f"{item['ratio']:g}" if item["ratio"] else "one vector"
        accuracy = "-" if item["token_accuracy"] is None else f"{item['token_accuracy']:.1%}"
        rows.append(
            f"| {ratio} | {item['max_tokens']} | {item['bleu']:.1f} | {item['exact']:.1%} | "
            f"{accuracy} | {item['vectors']:,} / {item['tokens']:,} |"
        )
    data = ", ".join(item["source"] for item in results["data"])
    count, beams = results["results"][0]["documents"], results["settings"]["beams"]
    rows += ["", f"{data}: {count} documents of each length, {beams} {'beams' if beams > 1 else 'beam'}."]
    return "\n".join(rows) + "\n"
