"""Nuggets: the encoded form of a text."""

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
    """One vector of a text, as returned by `nuggets[i]`."""

    vector: NDArray[np.floating]
    """`(d,)`."""
    token: str
    """The selected token as written in the text."""
    score: float
    """Score of the token; 0 if a rule selected it."""
    position: int
    """Token index in the text, counting special tokens."""
    span: tuple[int, int]
    """Character span of the selected token."""
    segment: tuple[int, int]
    """Character span of the segment that ends with it."""


@dataclass(frozen=True, eq=False)
class Nuggets:
    """The k vectors of a text, in reading order, with their positions in the text."""

    vectors: NDArray[np.floating]
    """`(k, d)` the nuggets Z."""
    scores: NDArray[np.float32]
    """`(k,)` scores of the selected tokens; zeros if a rule selected them."""
    positions: NDArray[np.int64]
    """`(k,)` token indices in the whole text, counting special tokens."""
    spans: NDArray[np.int64]
    """`(k, 2)` character spans of the selected tokens in the whole text."""
    tokens: tuple[str, ...]
    """The k selected tokens as written in the text; special tokens by name."""
    windows: NDArray[np.int64]
    """`(w, 4)` per encoded window: number of nuggets, number of tokens, first and last character.

    `window_counts`, `window_tokens` and `window_spans` name these columns.
    """
    layout: Layout = ORDINARY
    """Whitespace that the vectors do not represent, such as line breaks."""
    comparable: bool = True
    """Whether the model was trained for comparable vectors; comparing others issues a warning."""

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
                raise InputError(
                    f"nuggets with {k} vectors cannot have {length} {name}: give one per vector."
                )
        words, runs = self.layout.words, self.layout.runs
        if (words or runs) and len(words) != len(self.windows):
            raise InputError(f"a layout of {len(words)} windows does not fit {len(self.windows)} windows.")
        if any(not 0 <= before <= sum(words) for before, _ in runs):
            raise InputError(f"a layout of {sum(words)} words has whitespace outside the text.")

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
        i = range(len(self))[index]  # resolves negative indices and raises IndexError
        return self._nugget(i, self.segments[i].tolist())

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
        """Return the vectors as a `(k, d)` tensor that shares their memory."""
        import torch

        return torch.from_numpy(self.vectors)

    def __repr__(self) -> str:
        k, d = self.vectors.shape
        shown = " ".join(self.tokens[:12]) + (" ..." if k > 12 else "")
        return f"Nuggets({k} of {self.token_count} tokens, {d} dimensions: {shown})"

    @property
    def token_count(self) -> int:
        """Number of tokens n of the text, including special tokens."""
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
        """`(k, 2)` character spans of the segments, each from the end of the previous nugget to the end of its own.

        The first segment of a window starts and the last one ends with the window.
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
        """Concatenate the nuggets of consecutive parts of one text.

        Spans must already refer to the whole text; token positions are shifted.
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
