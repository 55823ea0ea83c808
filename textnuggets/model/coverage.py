"""Vocabulary coverage: unknown pieces, words split into pieces, and characters that the decoder cannot produce.

With both shipped tokenizers, 4 to 12% of the words of English text are split into several pieces, and 48 to 93% in other
languages (figures in docs/files.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from math import sqrt
from typing import Any
from unicodedata import normalize
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import TextnuggetsWarning
from textnuggets.model.windows import METASPACE, Window

OTHER, START, INSIDE, UNKNOWN, SPECIAL = range(5)  # START begins a word, INSIDE continues one
UNKNOWN_SHARE = 0.001  # a smaller share of unknown pieces does not affect the vectors
FEWEST_WORDS = 20  # too few words to judge the language
SPLIT_SHARE, SPLIT_MARGIN = 0.33, 0.5  # threshold of an unknown language; see `_is_foreign`
SHOWN = 8  # maximum number of characters in a warning
EXAMPLES = 2  # maximum number of example words
SAMPLE = 2000  # characters of a window searched for examples


class Vocabulary:
    """Kind of each piece of a tokenizer, and a cache of the characters it cannot represent."""

    def __init__(self, tokenizer: Any) -> None:
        pieces: dict[str, int] = tokenizer.get_vocab()
        self.kinds: NDArray[np.int8] = np.zeros(max(pieces.values(), default=0) + 1, np.int8)
        by_suffix = any(piece.startswith("##") for piece in pieces)
        lengths = []
        for piece, index in pieces.items():
            inside = piece.startswith("##") if by_suffix else piece[:1] not in (METASPACE, "\u0120")
            body = piece.removeprefix("##") if by_suffix else piece.lstrip(METASPACE + "\u0120")
            lengths.append(len(body))
            is_byte = len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")
            if is_byte or (inside and body[:1].isalpha()):
                self.kinds[index] = INSIDE
            elif body[:1].isalpha() or piece in (METASPACE, "\u0120"):
                self.kinds[index] = START
        if np.median(lengths) <= 2:  # a byte or character tokenizer, which splits every word
            self.kinds[:] = OTHER
        self.kinds[tokenizer.all_special_ids] = SPECIAL
        if tokenizer.unk_token_id is not None:
            self.kinds[tokenizer.unk_token_id] = UNKNOWN
        self._lost: dict[str, bool] = {}

    def lost(self, tokenizer: Any, characters: Iterable[str]) -> list[str]:
        """Return the characters that do not survive tokenizing and decoding."""
        characters = sorted(characters)
        if fresh := [c for c in characters if c not in self._lost]:
            # Some tokenizers have a character only at the start of a word, or only inside one.
            inside, alone = (
                tokenizer.batch_decode(
                    tokenizer([form.format(c) for c in fresh], verbose=False).input_ids,
                    skip_special_tokens=True,
                )
                for form in ("a{}a", "a {} a")
            )
            for c, *backs in zip(fresh, inside, alone, strict=True):
                # Canonically equivalent characters count as the same.
                known = any(normalize("NFD", c) in normalize("NFD", back) for back in backs)
                self._lost[c] = not (known or c.isspace())
        return [c for c in characters if self._lost[c]]


_VOCABULARIES: WeakKeyDictionary[Any, Vocabulary] = WeakKeyDictionary()


def vocabulary_of(tokenizer: Any) -> Vocabulary:
    """Return the vocabulary of a tokenizer, cached."""
    if tokenizer not in _VOCABULARIES:
        _VOCABULARIES[tokenizer] = Vocabulary(tokenizer)
    return _VOCABULARIES[tokenizer]


@dataclass
class Coverage:
    """Counts over all texts of a run, reported in one warning at its end."""

    pieces: int = 0
    words: int = 0
    split: int = 0
    """Number of words of several pieces."""
    unknown: int = 0
    unknown_words: list[str] = field(default_factory=list)
    broken_words: list[str] = field(default_factory=list)
    """Words with the most pieces, from the window with the most split words."""
    most: int = 0
    """Number of split words of that window."""
    lost: dict[str, None] = field(default_factory=dict)
    """Characters that cannot be decoded, in order of first occurrence."""

    def add_texts(self, tokenizer: Any, texts: Sequence[str]) -> None:
        """Record the characters that the model cannot decode; only for models with a decoder."""
        self.lost.update(dict.fromkeys(vocabulary_of(tokenizer).lost(tokenizer, set().union(*texts))))

    def add_batch(
        self,
        tokenizer: Any,
        windows: Sequence[Window],
        ids: NDArray[np.int64],
        mask: NDArray[np.bool_],
        decodes: bool,
    ) -> None:
        """Count the pieces of a batch of windows.

        Args:
            tokenizer: Tokenizer of the windows.
            windows: Windows of the batch.
            ids: `(batch, n)` token ids, padded.
            mask: `(batch, n)` True on real tokens.
            decodes: Whether the model has a decoder, so that unknown characters are recorded as lost.
        """
        kinds = np.where(mask, vocabulary_of(tokenizer).kinds[ids], SPECIAL)
        pieces = (kinds != SPECIAL).sum(1)
        starts = kinds == START
        split = (starts[:, :-1] & (kinds[:, 1:] == INSIDE)).sum(1)
        self.pieces += int(pieces.sum())
        self.words += int(starts.sum())
        self.split += int(split.sum())
        worst = int(split.argmax())
        if split[worst] > self.most:  # rarely true after the first batches
            self.most, window = int(split[worst]), windows[worst]
            sample = window.text[window.start : min(window.end, window.start + SAMPLE)]
            self.broken_words = _most_broken(tokenizer, sample)
        for row, position in np.argwhere(kinds == UNKNOWN).tolist():
            window = windows[row]
            start, end = window.span(position)
            if window.text[start:end].strip():
                self.unknown += 1
                self._note(self.unknown_words, [_word_around(window.text, start, end)])
                if decodes:
                    self.lost.update(dict.fromkeys("".join(window.text[start:end].split())))
            else:  # whitespace, which is stored in the layout
                self.pieces -= 1

    def merge(self, other: Coverage) -> None:
        """Add the counts of another coverage."""
        self.pieces += other.pieces
        self.words += other.words
        self.split += other.split
        self.unknown += other.unknown
        self._note(self.unknown_words, other.unknown_words)
        if other.most > self.most:
            self.most, self.broken_words = other.most, other.broken_words
        self.lost.update(other.lost)

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as a JSON-serializable dict; `Coverage(**counts)` restores them."""
        return asdict(self)

    def message(self) -> str | None:
        """Return the warning, or None if there is nothing to report."""
        problems = []
        if _is_foreign(self.split, self.words):
            problems.append(
                f"{self.split / self.words:.0%} of the words are rare to the model, which splits them into pieces "
                f"(as in {_quoted(self.broken_words)}): it may not know the language"
            )
        if self.unknown and self.unknown >= UNKNOWN_SHARE * self.pieces:
            share = f"{self.unknown / self.pieces:.2%} of the pieces are"
            problems.append(f"{share} unknown to the model (as in {_quoted(self.unknown_words)})")
        if self.lost:
            more = f" and {len(self.lost) - SHOWN} more" if len(self.lost) > SHOWN else ""
            problems.append(f"cannot be decoded again: {_quoted([*self.lost][:SHOWN])}{more}")
        return "; ".join(problems) + "." if problems else None

    def warn(self, stacklevel: int = 2) -> None:
        """Issue the warning, if there is one."""
        if (message := self.message()) is not None:
            warnings.warn(message, TextnuggetsWarning, stacklevel=stacklevel + 1)

    @staticmethod
    def _note(examples: list[str], words: Iterable[str]) -> None:
        for word in words:
            if len(examples) < EXAMPLES and word not in examples:
                examples.append(word)


class Uncounted(Coverage):
    """Coverage that counts nothing, for `collecting` where no warning is shown."""

    def add_texts(self, tokenizer: Any, texts: Sequence[str]) -> None:
        """Do nothing."""

    def add_batch(self, *_: Any) -> None:
        """Do nothing."""


_ACTIVE: ContextVar[Coverage | None] = ContextVar("coverage", default=None)


def active_coverage() -> Coverage | None:
    """Return the coverage of the enclosing `collecting`, or None."""
    return _ACTIVE.get()


@contextmanager
def collecting(coverage: Coverage) -> Iterator[None]:
    """Collect the counts of every `encode` in the block in `coverage`, without issuing a warning."""
    token = _ACTIVE.set(coverage)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


@contextmanager
def one_warning(stacklevel: int = 2) -> Iterator[None]:
    """Issue one warning for all `encode` calls in the block, unless an outer block collects."""
    if _ACTIVE.get() is not None:
        yield
        return
    coverage = Coverage()
    with collecting(coverage):
        yield
    coverage.warn(stacklevel + 2)  # this function and contextlib's


def _is_foreign(split: int, words: int) -> bool:
    """Return whether the share of split words suggests a language unknown to the model.

    The fewer words, the larger the share must be.
    """
    if words < FEWEST_WORDS:
        return False
    return split / words > SPLIT_SHARE + SPLIT_MARGIN / sqrt(words)


def _most_broken(tokenizer: Any, text: str) -> list[str]:
    """Return the words with the most pieces."""
    words = list(dict.fromkeys(text.split()))
    kinds = vocabulary_of(tokenizer).kinds
    counts = [int((kinds[ids] == INSIDE).sum()) for ids in tokenizer(words, verbose=False).input_ids]
    order = sorted(range(len(words)), key=lambda i: -counts[i])
    return [words[i][:40] for i in order[:EXAMPLES]]


def _word_around(text: str, start: int, end: int) -> str:
    """Return the word around `text[start:end]`, truncated if it is long."""
    first, last = start, end
    while first > 0 and start - first < 20 and not text[first - 1].isspace():
        first -= 1
    while last < len(text) and last - end < 20 and not text[last].isspace():
        last += 1
    return text[first:last]


def _quoted(items: Sequence[str]) -> str:
    return ", ".join(repr(item) for item in items)
