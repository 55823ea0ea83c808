"""Splitting of texts into windows that fit the encoder, without truncation.

A text that fits is one window. A longer text is split at sentence ends into as few windows as
possible, each tokenized as a text of its own; spans still refer to the whole text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from textnuggets.errors import InputError
from textnuggets.io.sentences import sentence_spans

METASPACE = "\u2581"  # SentencePiece's symbol for a space


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens of the part `text[start:end]` of a text."""

    text: str
    """The whole text."""
    start: int
    end: int
    encoding: Any
    """The `tokenizers.Encoding` of the part."""

    @property
    def ids(self) -> list[int]:
        """Token ids, including special tokens."""
        ids: list[int] = self.encoding.ids
        return ids

    def span(self, position: int) -> tuple[int, int]:
        """Return the character span of a token in the whole text, without leading whitespace.

        Special tokens have empty spans: at the start of the window for the first token, else at its end.
        """
        chars = self.encoding.token_to_chars(position)
        if chars is None:
            edge = self.start if position == 0 and len(self.encoding) > 1 else self.end
            return edge, edge
        if chars[0] == 0 and self.encoding.tokens[position] == METASPACE:
            return self.start, self.start  # added by the tokenizer, not part of the text
        start, end = self.start + chars[0], self.start + chars[1]
        while start < end and self.text[start].isspace():
            start += 1
        return start, end

    def surface(self, position: int) -> str:
        """Return the token as written in the text, or the name of a special token."""
        start, end = self.span(position)
        return self.text[start:end] or self.encoding.tokens[position]

    def sentence_ends(self) -> list[bool]:
        """Return a mask that is True on the last token of every sentence of the window."""
        ends = [self.start + end for _, end in sentence_spans(self.text[self.start : self.end])]
        marks = [False] * len(self.encoding)
        previous = -1  # last token with characters
        for position in range(len(marks)):
            start, end = self.span(position)
            if start == end:
                continue
            if previous >= 0 and ends and start >= ends[0]:
                marks[previous] = True
                del ends[: bisect_right(ends, start)]
            previous = position
        if previous >= 0:
            marks[previous] = True
        return marks


@dataclass(frozen=True)
class CutTexts:
    """Windows of texts by text, kept so that the texts need not be tokenized again."""

    tokenizer: Any
    limit: int
    windows: Mapping[str, list[Window]]


_CUT: ContextVar[CutTexts | None] = ContextVar("cut texts", default=None)


@contextmanager
def reusing(cut: CutTexts) -> Iterator[None]:
    """Use the given windows in the block when the same texts are cut with the same tokenizer and limit."""
    token = _CUT.set(cut)
    try:
        yield
    finally:
        _CUT.reset(token)


def cut_into_windows(tokenizer: Any, texts: Sequence[str], limit: int) -> list[list[Window]]:
    """Tokenize texts into windows of at most `limit` tokens, including special tokens."""
    cut = _CUT.get()
    if cut is None or cut.tokenizer is not tokenizer or cut.limit != limit:
        return cut_encodings(tokenizer, texts, tokenize(tokenizer, texts), limit)
    if fresh := [text for text in texts if text not in cut.windows]:
        made = iter(cut_encodings(tokenizer, fresh, tokenize(tokenizer, fresh), limit))
    return [cut.windows[text] if text in cut.windows else next(made) for text in texts]


def cut_encodings(
    tokenizer: Any, texts: Sequence[str], encodings: Sequence[Any], limit: int
) -> list[list[Window]]:
    """Return the windows of texts that are tokenized; only texts of several windows are tokenized again, in parts."""
    return [
        [Window(text, 0, len(text) if text.strip() else 0, encoding)]
        if len(encoding) <= limit
        else _cut(tokenizer, text, encoding, limit)
        for text, encoding in zip(texts, encodings, strict=True)
    ]


def tokenize(tokenizer: Any, texts: Sequence[str]) -> list[Any]:
    """Return the `tokenizers.Encoding` of every text, untruncated, with special tokens."""
    batch = tokenizer(
        list(texts), truncation=False, padding=False, return_attention_mask=False, verbose=False
    )
    encodings: list[Any] = batch.encodings
    return encodings


def _cut(tokenizer: Any, text: str, encoding: Any, limit: int) -> list[Window]:
    """Split a text at sentence ends into windows of at most `limit` tokens."""
    room = limit - sum(encoding.special_tokens_mask)
    starts = [
        start
        for (start, _), special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
        if not special
    ]
    pending = _pack_sentences(text, starts, room)
    windows: list[Window] = []
    while pending:
        spans = [_strip(text, start, end) for start, end in pending]
        encodings = tokenize(tokenizer, [text[start:end] for start, end in spans])
        too_long: list[tuple[int, int]] = []
        for (start, end), part in zip(spans, encodings, strict=True):
            if len(part) <= limit:
                windows.append(Window(text, start, end, part))
            elif end - start == 1:
                raise InputError(
                    f"the character {text[start]!r} at {start} takes {len(part)} tokens, more than the "
                    f"window of {limit}: give the model a larger window."
                )
            else:
                # Without its context a part may have a few more tokens: split it in half.
                middle = _break_near(text, start, end, (start + end) // 2)
                too_long += [(start, middle), (middle, end)]
        pending = too_long
    windows = sorted((w for w in windows if w.end > w.start), key=lambda window: window.start)
    if not windows:  # only whitespace, which some tokenizers split into many tokens
        return [Window(text, 0, 0, *tokenize(tokenizer, [""]))]
    return windows


def _pack_sentences(text: str, starts: list[int], room: int) -> list[tuple[int, int]]:
    """Group adjacent sentences into spans of at most `room` tokens; `starts` are the tokens' offsets."""

    def tokens_before(offset: int) -> int:
        return bisect_right(starts, offset - 1)

    packed: list[tuple[int, int]] = []
    begin, stop = 0, 0  # current span
    for _, sentence_end in sentence_spans(text):
        if tokens_before(sentence_end) - tokens_before(begin) <= room:
            stop = sentence_end
            continue
        if stop > begin:
            packed.append((begin, stop))
            begin = stop
        # A sentence longer than `room` is split between words.
        while (first := tokens_before(begin)) + room < tokens_before(sentence_end):
            cut = _break_near(text, begin, sentence_end, starts[first + room])
            packed.append((begin, cut))
            begin = cut
        stop = sentence_end
    if stop > begin:
        packed.append((begin, stop))
    return packed


def _break_near(text: str, start: int, end: int, target: int) -> int:
    """Return the end of the last word before `target`, or `target` in text without spaces.

    The result is always greater than `start`, so that splitting makes progress.
    """
    target = max(min(target, end - 1), start + 1)
    for cut in range(target, max(start, target - 100), -1):
        if text[cut - 1].isspace():
            return cut
    return target


def _strip(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span without surrounding whitespace."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end
