"""Perplexity of long texts by what a decoder-only model keeps of the past in its cache.

Every system predicts the same tokens: those after the first two segments, where something has been compressed. Rivals of
nuggets are the base itself with

- `full`: everything before a token;
- `window`: the first token and the most recent ones, exactly as many as nuggets have columns at that place;
- `every`: the current and the previous segment, and evenly spaced tokens of older ones, as many as there are nuggets;
- `segments`: the current and the previous segment, and the first token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from textnuggets.causal.masks import float_masks
from textnuggets.causal.modeling import CausalNuggetLM
from textnuggets.checks import check_count, check_ratio
from textnuggets.errors import ConfigError, InputError
from textnuggets.evaluate.perplexity import Article, Interval, compare, interval, make_article, show
from textnuggets.evaluate.stats import bootstrap
from textnuggets.io.progress import Progress
from textnuggets.lm.corpus import read_long_texts
from textnuggets.model.budget import nugget_count
from textnuggets.model.selection import get_selector

TOKENS = 2048  # of each article
CHUNK = 512  # positions whose logits are held at a time
RIVALS = ("full", "window", "every", "segments")


def read_beginnings(source: str, tokenizer: Any, tokens: int, count: int | None) -> list[Article]:
    """Return the first `tokens` tokens of the texts of a corpus that have as many, at most `count` texts."""
    articles: list[Article] = []
    for text in read_long_texts([source]):
        if count is not None and len(articles) == count:
            break
        article = make_article(text, tokenizer)
        if len(article.ids) >= tokens:
            last = int(article.words[tokens - 1])
            # The last word may be cut.
            counted = article.counted & (np.arange(len(article.counted)) < last)
            articles.append(Article(article.ids[:tokens], article.words[:tokens], counted, article.forms))
    if not articles:
        raise InputError(f"{source}: no text has {tokens} tokens: choose fewer.")
    return articles


def evaluate_cached_context(
    lm: CausalNuggetLM, articles: Sequence[Article], ratios: Sequence[float] | None = None, seed: int = 0
) -> list[dict[str, Any]]:
    """Measure perplexity per word with nuggets and with each rival.

    Args:
        lm: Language model.
        articles: Articles of equal length, from `read_beginnings`.
        ratios: Compression ratios; the model's own by default.
        seed: Seed of the bootstrap over articles.

    Returns:
        One dictionary per system and ratio. Those of nuggets have `against`: their perplexity divided by that of each
        rival, with a paired interval, and `closed`: the share of the gap in nats between `segments` and `full`.
    """
    size, length = lm.config.segment, len(articles[0].ids)
    check_count("tokens", length, at_least=2 * size + 2)
    if length > (room := lm.base.config.max_position_embeddings):
        raise ConfigError(f"texts of {length} tokens are too long: the base takes at most {room}.")
    ratios = [lm.config.ratio] if ratios is None else [check_ratio(ratio) for ratio in ratios]
    systems: list[tuple[str, float | None]] = [("full", None), ("segments", None)]
    systems += [(name, ratio) for ratio in ratios for name in ("nuggets", "window", "every")]
    sums: dict[tuple[str, float | None], list[tuple[float, int]]] = {system: [] for system in systems}
    with Progress("perplexity", len(articles) * len(systems)) as progress, lm.evaluating():
        for article in articles:
            ids = torch.from_numpy(article.ids)[None].to(lm.device)
            for name, ratio in systems:
                with torch.inference_mode():
                    log = _log_probabilities(lm, ids, _states(lm, ids, name, ratio))
                sums[name, ratio].append(_sum(article, log, 2 * size))
                progress.add(1)
    return [_result(lm, name, ratio, sums, length, seed) for name, ratio in systems]


def columns_of(length: int, segment: int, ratio: float | None) -> NDArray[np.int64]:
    """Return the number of keys and values that each token of a text reads, itself included.

    Args:
        length: Number of tokens.
        segment: Tokens per segment.
        ratio: Compression ratio of older segments; None drops them.
    """
    positions = np.arange(length)
    number = positions // segment
    older = np.maximum(number - 1, 0)
    kept = 0 if ratio is None else nugget_count(segment, ratio)
    first = min(kept, segment - 1)  # the first token is kept anyway
    nuggets = np.where(older > 0, 1 + first + (older - 1) * kept, 0)
    columns: NDArray[np.int64] = nuggets + positions - older * segment + 1
    return columns


def _states(lm: CausalNuggetLM, ids: Tensor, name: str, ratio: float | None) -> Tensor:
    """Return the states of a system, from which the next tokens are predicted."""
    if name == "nuggets":
        return lm(ids, ratio, by_segments=True)
    with lm.bare():
        if name == "every":
            with _selecting(lm, "even"):
                return lm(ids, ratio, by_segments=True)
        masks = None if name == "full" else _recent(lm, ids.shape[1], name, ratio)
        output = lm.base.base_model(ids, attention_mask=masks, use_cache=False)
    states: Tensor = output.last_hidden_state
    return states


@contextmanager
def _selecting(lm: CausalNuggetLM, name: str) -> Iterator[None]:
    before, lm.selector = lm.selector, get_selector(name)
    try:
        yield
    finally:
        lm.selector = before


def _recent(lm: CausalNuggetLM, length: int, name: str, ratio: float | None) -> Any:
    """Return the masks of a model that reads the first token and the most recent ones."""
    positions = torch.arange(length, device=lm.device)
    rows, columns = positions[:, None], positions[None, :]
    if name == "segments":
        oldest = (rows // lm.config.segment - 1) * lm.config.segment
    else:
        count = torch.from_numpy(columns_of(length, lm.config.segment, ratio)).to(lm.device)[:, None]
        # One of them is the first token, once it is no longer among the recent ones.
        oldest = torch.where(count <= rows, rows - count + 2, 0)
    visible = (columns <= rows) & ((columns >= oldest) | (columns == 0))
    bias = torch.zeros(1, 1, length, device=lm.device)
    return float_masks(visible[None], bias, (rows - columns)[None], lm.window, lm.dtype)


def _log_probabilities(lm: CausalNuggetLM, ids: Tensor, states: Tensor) -> NDArray[np.float64]:
    """Return the log-probability of every token; 0 for the first."""
    found = [torch.zeros(1, device=ids.device)]
    for start in range(0, ids.shape[1] - 1, CHUNK):
        following = ids[0, start + 1 : start + CHUNK + 1]
        logits = lm.project(states[0, start : start + len(following)]).float()
        found.append(logits.gather(-1, following[:, None])[:, 0] - logits.logsumexp(-1))
    return torch.cat(found).cpu().double().numpy()


def _sum(article: Article, log: NDArray[np.float64], start: int) -> tuple[float, int]:
    """Return the log-probability and number of the words that begin at `start` or later."""
    counted = article.counted.copy()
    counted[: int(article.words[start - 1]) + 1] = False
    return float(log[counted[article.words]].sum()), int(counted.sum())


def _result(
    lm: CausalNuggetLM,
    name: str,
    ratio: float | None,
    sums: dict[tuple[str, float | None], list[tuple[float, int]]],
    length: int,
    seed: int,
) -> dict[str, Any]:
    found = np.array(sums[name, ratio])
    columns = length if name == "full" else int(columns_of(length, lm.config.segment, ratio)[-1])
    result = {
        "system": name,
        "ratio": ratio,
        "cache": columns,
        "articles": len(found),
        "words": int(found[:, 1].sum()),
        "word_perplexity": interval(found, seed),
        "by_article": found.round(3).tolist(),
    }
    if name == "nuggets":
        rivals = {rival: sums.get((rival, ratio)) or sums[rival, None] for rival in RIVALS}
        result["against"] = {
            rival: compare(found, np.array(theirs), seed) for rival, theirs in rivals.items()
        }
        result["closed"] = _closed(found, np.array(rivals["segments"]), np.array(rivals["full"]), seed)
    return result


def _closed(
    nuggets: NDArray[np.float64], segments: NDArray[np.float64], full: NDArray[np.float64], seed: int
) -> Interval:
    """Return the share of the gap in nats between two whole segments and everything that nuggets close."""
    gains = np.stack([nuggets[:, 0] - segments[:, 0], full[:, 0] - segments[:, 0]], 1)

    def share(samples: NDArray[Any]) -> NDArray[np.float64]:
        totals = samples.sum(1)
        shares: NDArray[np.float64] = totals[:, 0] / totals[:, 1]
        return shares

    (value,) = share(gains[None])
    low, high = bootstrap(gains, share, seed)
    return {"value": float(value), "low": low, "high": high}


def to_markdown(results: dict[str, Any]) -> str:
    """Return a table of the systems."""
    lines = ["| what is kept | r | cache, tokens | perplexity by word |", "|---|---|---|---|"]
    names = {
        "full": "everything",
        "segments": "two segments",
        "nuggets": "two segments and nuggets",
        "window": "a window of the same size",
        "every": "two segments and evenly spaced tokens",
    }
    for item in results["results"]:
        ratio = "" if item["ratio"] is None else f"{item['ratio']:g}"
        shown = show(item["word_perplexity"])
        lines.append(f"| {names[item['system']]} | {ratio} | {item['cache']:,} | {shown} |")
    return "\n".join(lines) + "\n"
