"""Perplexity of long texts per word and per token, on the same tokens for every model and history.

The probability of a word is the product of the probabilities of its tokens. Words marked `<unk>` are not scored, as in
the paper, nor are their tokens. A token is predicted from the preceding tokens of its window and from what the model
remembers of the h segments before the window. Windows overlap, and only the last `stride` tokens of each are scored, so
that every token has at least `segment - stride` tokens before it, except at the start of a text; the paper gives each
as many as possible. With a stride of a whole segment, tokens are predicted as in streaming.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from textnuggets.checks import check_count, check_ratio
from textnuggets.errors import ConfigError, InputError
from textnuggets.evaluate.repeats import KINDS, is_name, last_occurrence
from textnuggets.evaluate.stats import bootstrap
from textnuggets.io.progress import Progress
from textnuggets.io.wikitext import LongText
from textnuggets.lm.corpus import read_long_texts
from textnuggets.lm.memory import History, SegmentMemory
from textnuggets.lm.modeling import NuggetLM

BATCH = 16  # windows predicted together

WINDOWS = 4096  # windows whose nuggets are held in memory at a time
UNKNOWN = "<unk>"

Interval = dict[str, float | None]  # value, low and high; None if unknown
Memories = dict[tuple[int, int, int], SegmentMemory]  # keys: article, start, end


@dataclass
class Article:
    """A tokenized text, with the word of every token."""

    ids: NDArray[np.int64]
    words: NDArray[np.int64]
    """`(tokens,)` index of the word each token belongs to."""
    counted: NDArray[np.bool_]
    """`(words,)` whether each word is scored."""
    forms: list[str]
    """Words as they are written."""


def read_articles(source: str, tokenizer: Any) -> list[Article]:
    """Read the articles of a corpus; a .txt file is split at WikiText headings, if it has any.

    Articles without a word to score are left out.
    """
    articles = [make_article(text, tokenizer) for text in read_long_texts([source]) if text.ends]
    counted = [article for article in articles if article.counted.any()]
    if not counted:
        raise InputError(
            f"{source}: {f'no word to predict, only {UNKNOWN} or invisible characters' if articles else 'no text'}."
        )
    return counted


def make_article(text: LongText, tokenizer: Any) -> Article:
    """Tokenize a text and assign every token to the word that holds its last character or follows it."""
    encoding = tokenizer([text.text], add_special_tokens=False, verbose=False).encodings[0]
    last = np.array([max(end - 1, 0) for _, end in encoding.offsets], dtype=np.int64)
    words = np.searchsorted(text.ends, last, side="right")
    starts = [0, *text.ends[:-1]]
    forms = [text.text[start:end].strip() for start, end in zip(starts, text.ends, strict=True)]
    # Words of characters that no token covers, such as zero-width spaces, cannot be predicted.
    read = np.zeros(len(text.text), dtype=bool)
    for start, end in encoding.offsets:
        read[start:end] = True
    counted = np.array(
        [
            UNKNOWN not in form and bool(read[end - len(form) : end].any())
            for form, end in zip(forms, text.ends, strict=True)
        ]
    )
    return Article(np.array(encoding.ids, dtype=np.int64), words, counted, forms)


class Window(NamedTuple):
    """Tokens `start:end` of an article, of which `scored:end` are scored."""

    article: int
    start: int
    scored: int
    end: int


def windows_of(articles: Sequence[Article], segment: int, stride: int) -> list[Window]:
    """Return windows that together score every token once."""
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
    histories: Sequence[int] | None = None,
    ratio: float | None = None,
    stride: int | None = None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Measure perplexity per word and per token for several histories.

    Args:
        lm: Language model.
        articles: Articles from `read_articles`.
        histories: Values of h, where 0 means no history; default: the model's own.
        ratio: Compression ratio of the past; default: the model's own.
        stride: Number of tokens each window scores, a divisor of the segment; default: `default_stride`.
        seed: Seed of the bootstrap over articles.

    Returns:
        One dictionary per history. All but the first have `change`: their word perplexity divided by the word
        perplexity of the first history, with a paired interval over articles.
    """
    segment = lm.config.segment
    histories = [lm.config.history] if histories is None else list(histories)
    for history in histories:
        lm.check_room(check_count("history", history, at_least=0))
    if ratio is not None and lm.config.memory != "nuggets":
        raise ConfigError(f"a memory of {lm.config.memory!r} has no ratio.")
    ratio = check_ratio(lm.config.nugget.ratio if ratio is None else ratio)  # type: ignore[union-attr]
    stride = default_stride(segment) if stride is None else check_count("stride", stride, at_least=1)
    if segment % stride:
        raise ConfigError(f"a stride of {stride} does not divide the segment of {segment} tokens.")
    windows = windows_of(articles, segment, stride)
    logs = [[np.zeros(len(article.ids)) for article in articles] for _ in histories]
    with Progress("perplexity", len(windows) * len(histories)) as progress, lm.evaluating():
        memories: Memories = {}
        for start in range(0, len(windows), WINDOWS):
            some = windows[start : start + WINDOWS]
            memories = _remember(lm, articles, some, max(histories), ratio, memories)
            for log, history in zip(logs, histories, strict=True):
                for batch in _batches(some, segment, history):
                    found = _predict(lm, articles, batch, memories, history)
                    for window, values in zip(batch, found, strict=True):
                        log[window.article][window.scored : window.end] = values
                    progress.add(len(batch))
    results = []
    sums = [
        np.array([_sums(article, log) for article, log in zip(articles, by_article, strict=True)])
        for by_article in logs
    ]
    for history, found_sums, log in zip(histories, sums, logs, strict=True):
        results.append(
            {
                "history": history,
                "ratio": ratio if lm.config.memory == "nuggets" else None,
                "memory": lm.config.memory,
                "segment": segment,
                "stride": stride,
                "articles": len(articles),
                "words": int(found_sums[:, 1].sum()),
                "tokens": int(found_sums[:, 2].sum()),
                "word_perplexity": interval(found_sums[:, :2], seed),
                "token_perplexity": interval(found_sums[:, [0, 2]], seed),
                # Log-probability, words and tokens of every article, to compare two models later.
                "by_article": found_sums.round(3).tolist(),
            }
        )
        if stride == segment:  # windows that overlap do not assign each word to one segment
            results[-1]["by_kind"] = _by_kind(articles, log, segment)
    for result, found_sums in zip(results[1:], sums[1:], strict=True):
        result["change"] = compare(found_sums, sums[0], seed)
    return results


def default_stride(segment: int) -> int:
    """Return the largest divisor of a segment that is at most a quarter of it."""
    return max(stride for stride in range(1, max(1, segment // 4) + 1) if segment % stride == 0)


def compare(one: NDArray[np.float64], other: NDArray[np.float64], seed: int = 0) -> Interval:
    """Return the ratio of the word perplexities of two models, with a paired interval.

    Args:
        one: `by_article` of the first model.
        other: `by_article` of the second model, on the same articles.
        seed: Seed of the bootstrap.
    """
    return interval(np.stack([one[:, 0] - other[:, 0], one[:, 1]], 1), seed)


def _remember(
    lm: NuggetLM,
    articles: Sequence[Article],
    windows: Sequence[Window],
    history: int,
    ratio: float | None,
    known: Memories,
) -> Memories:
    """Return the nuggets of every segment that the windows look back to, encoding each once.

    Args:
        lm: Language model.
        articles: Articles of the windows.
        windows: Windows to be predicted next.
        history: Number of segments each window looks back.
        ratio: Compression ratio.
        known: Nuggets of the previous call, which are reused.
    """
    if lm.config.memory != "nuggets" or not history:
        return {}
    needed = {
        (window.article, *span)
        for window in windows
        for span in past_spans(window.start, lm.config.segment, history)
    }
    # Segments of equal length are encoded together.
    missing = sorted(needed - known.keys(), key=lambda span: (span[1] - span[2], span))
    texts = [articles[number].ids[start:end].tolist() for number, start, end in missing]
    with torch.inference_mode():
        encoded = zip(missing, lm.remember(texts, ratio), strict=True)
    return {**{span: known[span] for span in needed & known.keys()}, **dict(encoded)}


def _batches(windows: Sequence[Window], segment: int, history: int) -> Iterator[list[Window]]:
    """Yield batches of windows with equal lengths, contexts and numbers of scored tokens.

    Self-attention has no padding here, so windows of different lengths cannot share a batch.
    """
    alike: dict[tuple[int, ...], list[Window]] = {}
    for window in windows:
        sizes = [end - start for start, end in past_spans(window.start, segment, history)]
        alike.setdefault((window.end - window.start, window.end - window.scored, *sizes), []).append(window)
    for group in alike.values():
        for start in range(0, len(group), BATCH):
            yield group[start : start + BATCH]


def past_spans(start: int, segment: int, history: int) -> list[tuple[int, int]]:
    """Return the spans of the segments before a window, oldest first; the first of a text may be shorter."""
    ends = [start - segment * age for age in range(min(history, -(-start // segment)))]
    return [(max(0, end - segment), end) for end in reversed(ends)]


def _predict(
    lm: NuggetLM,
    articles: Sequence[Article],
    batch: Sequence[Window],
    memories: Memories,
    history: int,
) -> list[NDArray[np.float64]]:
    """Return the log-probabilities of the scored tokens of every window; all windows score equally many."""
    segment = lm.config.segment
    ids = torch.from_numpy(np.stack([articles[w.article].ids[w.start : w.end] for w in batch])).to(lm.device)
    past = [past_spans(window.start, segment, history) for window in batch]
    context, remembered = None, None
    if lm.config.memory == "nuggets":
        remembered = History.of(
            [[memories[w.article, *span] for span in spans] for w, spans in zip(batch, past, strict=True)]
        )
    elif past[0]:
        # Whole segments only: a shorter one at the beginning of a text is left out.
        size = segment * sum(end - start == segment for start, end in past[0])
        rows = [articles[window.article].ids[window.start - size : window.start] for window in batch]
        context = torch.from_numpy(np.stack(rows)).to(lm.device)
    with torch.inference_mode():
        count = batch[0].end - batch[0].scored
        logits = lm(ids, remembered, context, logits_to_keep=count).logits.float()
        chosen = logits.gather(-1, ids[:, -count:, None]).squeeze(-1) - logits.logsumexp(-1)
    return list(chosen.cpu().double().numpy())


def _sums(article: Article, log: NDArray[np.float64]) -> tuple[float, int, int]:
    """Return the log-probability of the scored words, their number, and the number of their tokens."""
    counted = article.counted[article.words]
    return float(log[counted].sum()), int(article.counted.sum()), int(counted.sum())


def _by_kind(
    articles: Sequence[Article], logs: Sequence[NDArray[np.float64]], segment: int
) -> dict[str, dict[str, list[float]]]:
    """Return log-probability and number of capitalized and other words, by where each last occurred."""
    found = {label: {kind: [0.0, 0.0] for kind in KINDS} for label in ("words", "names")}
    for article, log in zip(articles, logs, strict=True):
        values = np.bincount(article.words, weights=log, minlength=len(article.forms))
        places = np.searchsorted(article.words, np.arange(len(article.forms)))
        kinds = last_occurrence(article.forms, places, segment)
        for number in np.flatnonzero(article.counted).tolist():
            cell = found["names" if is_name(article.forms[number]) else "words"][KINDS[kinds[number]]]
            cell[0] += float(values[number])
            cell[1] += 1
    return found


def interval(sums: NDArray[np.float64], seed: int) -> Interval:
    """Return exp(-log-probability / count), with its bootstrap interval over articles.

    A bound is None if there is only one article. Any value is None if it overflows: in texts without spaces, a word
    can have hundreds of tokens.

    Args:
        sums: `(articles, 2)` log-probability and count of every article.
        seed: Seed of the bootstrap.
    """

    def perplexity(drawn: NDArray[np.float64]) -> NDArray[np.float64]:
        total = drawn.sum(-2)
        return np.asarray(np.exp(-total[..., 0] / total[..., 1]))

    with np.errstate(over="ignore", invalid="ignore"):
        found = [float(perplexity(sums)), math.inf, math.inf]
        if len(sums) > 1:
            found[1:] = bootstrap(sums, perplexity, seed)
    names = ("value", "low", "high")
    return {name: x if math.isfinite(x) else None for name, x in zip(names, found, strict=True)}


def show(found: Interval, digits: int = 2) -> str:
    """Format a value with its interval, if it has one."""
    if found["value"] is None:
        return "too large"
    value = f"{found['value']:.{digits}f}"
    if found["low"] is None or found["high"] is None:
        return value
    return f"{value} ({found['low']:.{digits}f} to {found['high']:.{digits}f})"


def to_markdown(results: dict[str, Any]) -> str:
    """Format results of `lm evaluate` as a Markdown table."""
    found = results["results"]
    rows = ["| h | perplexity by word | by token | against the first |", "|---|---|---|---|"]
    for item in found:
        cells = [show(item["word_perplexity"]), show(item["token_perplexity"])]
        cells.append(f"x {show(item['change'], 4)}" if "change" in item else "")
        rows.append(f"| {item['history']} | {' | '.join(cells)} |")
    first, data = found[0], ", ".join(item["source"] for item in results["data"])
    memory = f"r = {first['ratio']:g}" if first["ratio"] else first["memory"]
    told = (
        f"{data}: {first['articles']:,} articles, {first['words']:,} words, {first['tokens']:,} tokens; {memory}, "
        f"segments of {first['segment']} tokens, a stride of {first['stride']}."
    )
    return "\n".join([*rows, "", told]) + "\n"
