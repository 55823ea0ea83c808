"""TextEncoder: what encoding and search need of a model, whichever library runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SelectorTraits:
    """Traits of a selector that encoding depends on."""

    name: str
    learned: bool = False
    """Whether it uses scores; models have a scorer only for these."""
    counts: bool = True
    """Whether it honours the requested count, and so a ratio or `max_vectors`."""
    pools: bool = False
    """Whether the text becomes one vector, the mean over its tokens."""
    needs_sentence_ends: bool = False
    """Whether it uses `Candidates.sentence_ends`, which require the text."""
    needs_content: bool = False
    """Whether it uses `Candidates.content`, which requires a Unigram tokenizer."""


class Computed(NamedTuple):
    """Nuggets of a batch of windows, as arrays."""

    vectors: NDArray[np.float32]  # (batch, k_max, d)
    positions: NDArray[np.int64]  # (batch, k_max) ascending within each row
    kept: list[int]  # number of nuggets of each row; further slots are unused
    token_scores: NDArray[np.float32]  # (batch, n) score of every token; zeros if a rule selects


class TextEncoder:
    """Base class of all models that encode texts."""

    config: Any
    """Settings: `ratio`, `ratio_of_queries`, `comparable`, `name_or_path` and others."""
    selector: SelectorTraits
    device: Any

    @property
    def tokenizer(self) -> Any:
        """Tokenizer that returns `tokenizers.Encoding`s with offsets."""
        raise NotImplementedError

    @property
    def window(self) -> int:
        """Maximum number of tokens encoded at once, including special tokens."""
        raise NotImplementedError

    @property
    def pad_id(self) -> int:
        """Padding id, which attention masks out."""
        raise NotImplementedError

    @property
    def dim(self) -> int:
        """Number of dimensions of a nugget."""
        raise NotImplementedError

    @property
    def architecture(self) -> str:
        """Name of the backbone's architecture, such as `bert`."""
        raise NotImplementedError

    @property
    def can_decode(self) -> bool:
        """Whether nuggets can be turned back into text."""
        raise NotImplementedError

    @property
    def recorded_fingerprint(self) -> str | None:
        """Fingerprint that was recorded with the model; None if it is to be computed from the weights."""
        return None

    @property
    def arithmetic(self) -> dict[str, str]:
        """Precision and device, on which the last digits of a vector depend."""
        raise NotImplementedError

    def compute(
        self,
        input_ids: NDArray[np.int64],
        mask: NDArray[np.bool_],
        counts: list[int],
        sentence_ends: NDArray[np.bool_] | None = None,
    ) -> Computed:
        """Compute the nuggets of a batch of windows.

        Args:
            input_ids: `(batch, n)` token ids, padded.
            mask: `(batch, n)` True on real tokens.
            counts: k of each window.
            sentence_ends: `(batch, n)` True on the last token of each sentence, for `sentence_boundary`.
        """
        raise NotImplementedError

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Switch to evaluation mode within the block, if there is another mode."""
        yield
