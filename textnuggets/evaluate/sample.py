"""Random samples of packed documents to evaluate on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from textnuggets.data.packed import CACHE, PackedCorpus, PackingSettings, load_corpus, tokenizers_of
from textnuggets.model.modeling import NuggetModel


@dataclass(frozen=True)
class Sample:
    """Documents to evaluate on, drawn at random from corpora."""

    sources: Sequence[str]
    """Corpora, as for training."""
    documents: int = 200
    """Number of documents drawn for each length."""
    languages: Sequence[str] = ("en",)
    """Language of the texts; source and target for a translation model."""
    seed: int = 0
    """Seed of the sample and of bootstrap intervals."""
    cache: str = CACHE
    """Folder for packed documents."""

    def draw(
        self, model: NuggetModel, max_tokens: int, min_tokens: int = 16
    ) -> tuple[PackedCorpus, list[int]]:
        """Return the packed corpora and the rows of the drawn documents.

        Args:
            model: Model whose tokenizer counts the tokens.
            max_tokens: Maximum number of tokens per document; adjacent sentences are joined up to it.
            min_tokens: Minimum number of tokens per document.
        """
        settings = PackingSettings(
            list(self.languages), max_tokens, min_tokens, self.cache, translates=len(self.languages) > 1
        )
        corpus = load_corpus(self.sources, settings, tokenizers_of(model, settings))
        count = min(self.documents, len(corpus))
        return corpus, random.Random(self.seed).sample(range(len(corpus)), count)
