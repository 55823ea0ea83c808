"""Nuggets: what a text becomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import InputError
from textnuggets.model.layout import ORDINARY, Layout

if TYPE_CHECKING:
    from torch import Tensor


class Nugget(NamedTuple):
    """One vector of a text, as `nuggets[i]` gives it."""

    vector: NDArray[np.floating]
    """`(d,)`."""
    token: str
    """The chosen token as the text writes it."""
    score: float
    """The score the scorer gave it; 0 where a rule chose."""
    position: int
    """Token index in the text, special tokens counted."""
    span: tuple[int, int]
    """Characters of the chosen token."""
    segment: tuple[int, int]
    """Characters of the segment that ends with it."""


@dataclass(frozen=True, eq=False)
class Nuggets:
    """The k vectors of one text, in reading order, and where each of them comes from."""

    vectors: NDArray[np.floating]
    """`(k, d)` the nuggets Z."""
    scores: NDArray[np.float32]
    """`(k,)` what the scorer gave each of them; zeros where a rule chose."""
    positions: NDArray[np.int64]
    """`(k,)` token index in the whole text, special tokens counted."""
    spans: NDArray[np.int64]
    """`(k, 2)` characters of the chosen token in the text that was given."""
    tokens: tuple[str, ...]
    """`k` the chosen tokens as the text writes them; special ones by name."""
    windows: NDArray[np.int64]
    """`(w, 4)` per encoded window: number of nuggets, number of tokens, first and last character.

    `window_counts`, `window_tokens` and `window_spans` name these columns.
    """
    layout: Layout = ORDINARY
    """White space that the vectors do not hold, such as line breaks."""
    comparable: bool = True
    """Whether the model was trained for vectors that can be compared; comparing others gives a warning."""

    def __post_init__(self) -> None:
        k = len(self.vectors)
        lengths = {
            "scores": len(self.scores),
            "positions": len(self.positions),
            "spans": len(self.spans),
            "tokens": len(self.tokens),
            "windows": int(self.window_counts.sum()),
        }
        for name, length in lengths.items():
            if length != k:
                raise InputError(f"nuggets with {k} vectors cannot have {length} {name}.")
        words, runs = self.layout.words, self.layout.runs
        if (words or runs) and len(words) != len(self.windows):
            raise InputError(f"a layout of {len(words)} windows does not fit {len(self.windows)}.")
        if any(not 0 <= before <= sum(words) for before, _ in runs):
            raise InputError(f"a layout of {sum(words)} words has white space outside of them.")

    def __len__(self) -> int:
        return len(self.vectors)

    def __iter__(self) -> Iterator[Nugget]:
        segments = self.segments.tolist()
        for i in range(len(self)):
            yield self._nugget(i, segments[i])

    @overload
    def __getitem__(self, index: int) -> Nugget: ...
    @overload
    def __getitem__(self, index: slice) -> list[Nugget]: ...
    def __getitem__(self, index: int | slice) -> Nugget | list[Nugget]:
        if isinstance(index, slice):
            return list(self)[index]
        place = range(len(self))[index]  # negative ones count from the end; others raise IndexError
        return self._nugget(place, self.segments[place].tolist())

    def _nugget(self, i: int, segment: list[int]) -> Nugget:
        start, end = self.spans[i].tolist()
        return Nugget(
            self.vectors[i],
            self.tokens[i],
            float(self.scores[i]),
            int(self.positions[i]),
            (start, end),
            (segment[0], segment[1]),
        )

    def to_tensor(self) -> Tensor:
        """Return the vectors as a torch tensor `(k, d)` that shares their memory."""
        import torch

        return torch.from_numpy(self.vectors)

    def __repr__(self) -> str:
        k, d = self.vectors.shape
        shown = " ".join(self.tokens[:12]) + (" ..." if k > 12 else "")
        return f"Nuggets({k} of {self.token_count} tokens, {d} dimensions: {shown})"

    @property
    def token_count(self) -> int:
        """n, the number of tokens of the text, special ones included."""
        return int(self.window_tokens.sum())

    @property
    def window_counts(self) -> NDArray[np.int64]:
        """`(w,)` number of nuggets of each window."""
        return self.windows[:, 0]

    @property
    def window_tokens(self) -> NDArray[np.int64]:
        """`(w,)` number of tokens of each window, including special tokens."""
        return self.windows[:, 1]

    @property
    def window_spans(self) -> NDArray[np.int64]:
        """`(w, 2)` first and last character of each window."""
        return self.windows[:, 2:4]

    @property
    def segments(self) -> NDArray[np.int64]:
        """`(k, 2)` characters of the segment that ends with each nugget, from the end of the previous one.

        The first segment of a window starts, and the last ends, where the window does.
        """
        starts = np.concatenate([[0], self.spans[:-1, 1]]).astype(np.int64)
        ends = self.spans[:, 1].copy()
        after = np.cumsum(self.window_counts)  # index after the last nugget of each window
        has_any = self.window_counts > 0
        starts[(after - self.window_counts)[has_any]] = self.window_spans[has_any, 0]
        ends[after[has_any] - 1] = self.window_spans[has_any, 1]
        return np.stack([starts, ends], axis=1)

    @classmethod
    def concat(cls, parts: Sequence[Nuggets]) -> Nuggets:
        """Join the nuggets of consecutive stretches of one text.

        Spans must refer to the whole text already; token positions are counted on.
        """
        if not parts:
            raise InputError("nothing to concatenate: give at least one Nuggets.")
        if len(parts) == 1:
            return parts[0]
        offsets = np.cumsum([0, *(part.token_count for part in parts[:-1])])
        return cls(
            vectors=np.concatenate([part.vectors for part in parts]),
            scores=np.concatenate([part.scores for part in parts]),
            positions=np.concatenate(
                [part.positions + offset for part, offset in zip(parts, offsets, strict=True)]
            ),
            spans=np.concatenate([part.spans for part in parts]),
            tokens=tuple(token for part in parts for token in part.tokens),
            windows=np.concatenate([part.windows for part in parts]),
            layout=Layout.concat([part.layout for part in parts]),
            comparable=all(part.comparable for part in parts),
        )
