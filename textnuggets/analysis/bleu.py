"""BLEU of texts against references, computed by sacrebleu."""

from __future__ import annotations

from collections.abc import Sequence

from textnuggets.errors import MissingExtraError


class Bleu:
    """BLEU from 0 to 100.

    Args:
        purpose: What BLEU is needed for, named in the error if sacrebleu is not installed.
        language: Language of the texts; Chinese is tokenized as such, all others by 13a.
        effective_order: Whether to skip n-gram orders longer than the text, as recommended for single sentences.
    """

    def __init__(self, purpose: str = "BLEU", *, language: str = "en", effective_order: bool = False) -> None:
        try:
            from sacrebleu.metrics.bleu import BLEU
        except ImportError as error:
            raise MissingExtraError("sacrebleu", "evaluate", purpose) from error
        tokenizer = "zh" if language[:2] == "zh" else "13a"
        self._metric = BLEU(tokenize=tokenizer, effective_order=effective_order)

    def sentence(self, text: str, reference: str) -> float:
        """Return the BLEU of one text; use `effective_order`."""
        return float(self._metric.sentence_score(text, [reference]).score)

    def corpus(self, texts: Sequence[str], references: Sequence[str]) -> float:
        """Return the micro-averaged BLEU of texts."""
        return float(self._metric.corpus_score(texts, [references]).score)

    def counts(self, text: str, reference: str) -> list[int]:
        """Return the n-gram matches, n-gram totals and both lengths of one text, which add up over texts."""
        score = self._metric.corpus_score([text], [[reference]])
        return [*score.counts, *score.totals, score.sys_len, score.ref_len]

    def of_counts(self, sums: Sequence[int]) -> float:
        """Return the micro-averaged BLEU of summed `counts`."""
        order = self._metric.max_ngram_order
        matches, totals, length, reference_length = (
            list(sums[:order]),
            list(sums[order : 2 * order]),
            *sums[-2:],
        )
        method = self._metric.smooth_method
        return float(self._metric.compute_bleu(matches, totals, length, reference_length, method).score)

    @property
    def signature(self) -> str:
        """Settings and version of sacrebleu; complete once a score was computed."""
        return str(self._metric.get_signature())
