"""Perplexity of long texts, by word and by token, the same tokens for every model and every history.

A word's probability is the product over its tokens'; words the corpus has no name for (`<unk>`) do not count,
as in the paper. A token is predicted from the tokens before it in its segment and from what the model remembers of the
h segments before. With a stride below the segment length, windows overlap and only the last `stride` tokens
of each count: then every token but the text's first has at least segment - stride tokens before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from textnuggets.config import check_count
from textnuggets.errors import ConfigError, InputError
from textnuggets.lm.corpus import read_long_texts
from textnuggets.lm.history import History, SegmentMemory
from textnuggets.lm.modeling import NuggetLM
from textnuggets.progress import Progress

BATCH = 16  # windows predicted together
SAMPLES = 1000  # of the bootstrap
UNKNOWN = "<unk>"


@dataclass
class Article:
    """A text as tokens that know their words."""

    ids: NDArray[np.int64]
    words: NDArray[np.int64]
    """`(tokens,)` the word each token belongs to."""
    counted: NDArray[np.bool_]
    """`(words,)` whether a word counts."""


def read_articles(source: str, tokenizer: Any) -> list[Article]:
    """The articles of a .txt file, which begin with headings as in WikiText or are one; or of any corpus."""
    articles = [make_article(text, tokenizer) for text in read_long_texts([source]) if text.strip()]
    if not articles:
        raise InputError(f"{source}: no text.")
    return articles


def make_article(text: str, tokenizer: Any) -> Article:
    """Tokenize a text and find the word of every token."""
    text = " ".join(text.split())
    encoding = tokenizer([text], add_special_tokens=False, verbose=False).encodings[0]
    starts = np.cumsum([0, *(len(word) + 1 for word in text.split(" "))])[:-1]
    # A token belongs to the word its last character is in; the space before a word is the word's own.
    last = np.array([max(end - 1, 0) for _, end in encoding.offsets], dtype=np.int64)
    words = np.searchsorted(np.maximum(starts - 1, 0), last, side="right") - 1
    counted = np.array([UNKNOWN not in word for word in text.split(" ")])
    return Article(np.array(encoding.ids, dtype=np.int64), words, counted)


class Window(NamedTuple):
    """Tokens `start:end` of an article, of which those from `scored` on count."""

    article: int
    start: int
    scored: int
    end: int


def windows_of(articles: Sequence[Article], segment: int, stride: int) -> list[Window]:
    """Windows that together score every token once."""
    found: list[Window] = []
    for number, article in enumerate(articles):
        length = len(article.ids)
        found.append(Window(number, 0, 0, min(segment, length)))
        for end in range(segment + stride, length + stride, stride):
            start = end - segment
            found.append(Window(number, start, end - stride, min(end, length)))
    return found


def evaluate_perplexity(
    lm: NuggetLM,
    articles: Sequence[Article],
    history: int | None = None,
    ratio: float | None = None,
    stride: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Perplexity by word and by token.

    Args:
        lm: A language model.
        articles: From `read_articles`.
        history: h; the model's own by default, 0 for none.
        ratio: Compression ratio of the past; the model's own by default.
        stride: Tokens that each window scores; by default all of its segment, as in streaming.
        seed: Of the bootstrap over articles.
    """
    segment = lm.config.segment
    history = lm.config.history if history is None else check_count("history", history, at_least=0)
    stride = segment if stride is None else check_count("stride", stride, at_least=1)
    lm.check_room(history)
    if segment % stride:
        raise ConfigError(f"a stride of {stride} does not divide the segment of {segment} tokens.")
    logs = [np.zeros(len(article.ids)) for article in articles]
    windows = windows_of(articles, segment, stride)
    with Progress("perplexity", len(windows)) as progress, lm.evaluating(), torch.inference_mode():
        for batch, memories in _batches(lm, articles, windows, history, ratio):
            for window, found in zip(batch, _predict(lm, articles, batch, memories, history), strict=True):
                logs[window.article][window.scored : window.end] = found[window.scored - window.start :]
            progress.add(len(batch))
    sums = np.array([_sums(article, log) for article, log in zip(articles, logs, strict=True)])
    return {
        "history": history,
        "ratio": ratio or lm.config.nugget.ratio,  # type: ignore[union-attr]
        "memory": lm.config.memory,
        "segment": segment,
        "stride": stride,
        "articles": len(articles),
        "words": int(sums[:, 1].sum()),
        "tokens": int(sums[:, 3].sum()),
        "word_perplexity": _interval(sums[:, :2], seed),
        "token_perplexity": _interval(sums[:, 2:], seed),
    }


def _batches(
    lm: NuggetLM, articles: Sequence[Article], windows: Sequence[Window], history: int, ratio: float | None
) -> Iterator[tuple[list[Window], dict[tuple[int, int], SegmentMemory]]]:
    """Windows of as much context each, article by article, with what is remembered of what they need."""
    segment = lm.config.segment
    by_article: dict[int, list[Window]] = {}
    for window in windows:
        by_article.setdefault(window.article, []).append(window)
    for number, own in by_article.items():
        memories: dict[tuple[int, int], SegmentMemory] = {}
        if lm.config.memory == "nuggets" and history:
            spans = sorted({span for window in own for span in past_spans(window.start, segment, history)})
            ids = articles[number].ids
            made = lm.remember([ids[start:end].tolist() for start, end in spans], ratio)
            memories = dict(zip(spans, made, strict=True))
        # Of equal context and length, since nothing pads what self-attention reads.
        alike: dict[tuple[int, ...], list[Window]] = {}
        for window in own:
            sizes = [end - start for start, end in past_spans(window.start, segment, history)]
            alike.setdefault((window.end - window.start, *sizes), []).append(window)
        for group in alike.values():
            for start in range(0, len(group), BATCH):
                yield group[start : start + BATCH], memories


def past_spans(start: int, segment: int, history: int) -> list[tuple[int, int]]:
    """The segments before a window, oldest first; the first of a text may be shorter."""
    ends = [start - segment * age for age in range(history) if start - segment * age > 0]
    return [(max(0, end - segment), end) for end in reversed(ends)]


def _predict(
    lm: NuggetLM,
    articles: Sequence[Article],
    batch: Sequence[Window],
    memories: dict[tuple[int, int], SegmentMemory],
    history: int,
) -> list[NDArray[np.float64]]:
    """The log-probability of every token of every window."""
    segment = lm.config.segment
    ids = torch.from_numpy(np.stack([articles[w.article].ids[w.start : w.end] for w in batch])).to(lm.device)
    past = [past_spans(window.start, segment, history) for window in batch]
    context, remembered = None, None
    if lm.config.memory == "nuggets":
        remembered = History.of([[memories[span] for span in spans] for spans in past])
    elif past[0]:
        # Whole segments: a shorter one at the beginning of a text is left out.
        size = segment * sum(end - start == segment for start, end in past[0])
        rows = [articles[window.article].ids[window.start - size : window.start] for window in batch]
        context = torch.from_numpy(np.stack(rows)).to(lm.device)
    logits = lm(ids, remembered, context).logits.float()
    chosen = logits.gather(-1, ids[..., None]).squeeze(-1) - logits.logsumexp(-1)
    return list(chosen.double().cpu().numpy())


def _sums(article: Article, log: NDArray[np.float64]) -> tuple[float, int, float, int]:
    """Log-probability and number of the words that count, and of all tokens."""
    counted = article.counted[article.words]
    present = np.unique(article.words[counted])
    return float(log[counted].sum()), len(present), float(log.sum()), len(log)


def _interval(sums: NDArray[np.float64], seed: int) -> dict[str, float]:
    """exp(-log-probability / count), and where 95% of those of resampled articles lie."""
    random = np.random.default_rng(seed)
    drawn = sums[random.integers(len(sums), size=(SAMPLES, len(sums)))].sum(1)
    low, high = np.percentile(np.exp(-drawn[:, 0] / drawn[:, 1]), [2.5, 97.5])
    total = sums.sum(0)
    return {"value": math.exp(-total[0] / total[1]), "low": float(low), "high": float(high)}
