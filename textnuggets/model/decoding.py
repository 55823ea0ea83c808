"""Decoding of nuggets into texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from textnuggets.checks import ResidualMode
from textnuggets.io.progress import Progress
from textnuggets.model.cancelling import check_cancelled
from textnuggets.model.nuggets import Nuggets
from textnuggets.model.reconstruction import Reconstruction, join_words, word_scores
from textnuggets.model.residual import residual_bias

if TYPE_CHECKING:
    from textnuggets.model.modeling import NuggetModel

# A target may be longer than its source, as a translation or with another tokenization of the same text.
LENGTH_FACTOR, LENGTH_SLACK = 1.5, 16


class Decoded(NamedTuple):
    """Decoded text of one window."""

    text: str = ""
    scores: tuple[float, ...] = ()
    """Log-probability of each word, if requested."""


def reconstruct_all(
    model: NuggetModel,
    nuggets: Sequence[Nuggets],
    batch_size: int,
    residual: ResidualMode,
    progress: Progress,
    options: dict[str, Any],
    with_words: bool = False,
) -> list[Reconstruction]:
    """Decode every window separately, longest first, and join the windows of each text.

    With `with_words`, each text has words with probabilities, which take another pass of the decoder.
    """
    windows = [window for item in nuggets for window in _windows(item)]
    # An empty window decodes to an empty text; the decoder would invent one.
    nonempty = [i for i, window in enumerate(windows) if (np.diff(window.window_spans) > 0).any()]
    order = sorted(nonempty, key=lambda i: -windows[i].token_count)
    decoded = [Decoded()] * len(windows)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        batch = _decode_batch(model, [windows[i] for i in rows], residual, options, with_words)
        for i, item in zip(rows, batch, strict=True):
            decoded[i] = item
        progress.add(len(rows))
    remaining = iter(decoded)
    return [_join(item, [next(remaining) for _ in item.windows], with_words) for item in nuggets]


def _windows(nuggets: Nuggets) -> list[Nuggets]:
    """Split nuggets by window."""
    counts = nuggets.window_counts
    parts = []
    for count, stop, window in zip(counts, np.cumsum(counts), nuggets.windows, strict=True):
        cut = slice(int(stop - count), int(stop))
        parts.append(
            Nuggets(
                vectors=nuggets.vectors[cut],
                scores=nuggets.scores[cut],
                positions=nuggets.positions[cut],
                spans=nuggets.spans[cut],
                tokens=nuggets.tokens[cut],
                windows=window[None],
            )
        )
    return parts


def _decode_batch(
    model: NuggetModel,
    windows: list[Nuggets],
    residual: ResidualMode,
    options: dict[str, Any],
    with_words: bool,
) -> list[Decoded]:
    check_cancelled()
    k_max = max(len(window) for window in windows)
    vectors = torch.zeros(len(windows), k_max, model.dim)
    scores = torch.zeros(len(windows), k_max)
    kept = torch.zeros(len(windows), k_max, dtype=torch.bool)
    for i, window in enumerate(windows):
        vectors[i, : len(window)] = torch.from_numpy(window.vectors.astype(np.float32))
        scores[i, : len(window)] = torch.from_numpy(window.scores.astype(np.float32))
        kept[i, : len(window)] = True
    # Each length limit depends on the window alone, not on the rest of the batch.
    longest = model.decoder_window - 1
    limits = [min(int(LENGTH_FACTOR * n) + LENGTH_SLACK, longest) for n in (w.token_count for w in windows)]
    by_default = not {"max_new_tokens", "max_length"} & options.keys()
    if by_default:
        options = {**options, "max_new_tokens": max(limits)}
    device, dtype = model.device, model.dtype
    memory = vectors.to(device, dtype)
    bias = residual_bias(scores.to(device), kept.to(device), residual, model.adapter.residual_scale, dtype)
    with torch.inference_mode():
        generated: Any = model.adapter.generate(memory, bias, **options)
        likelihoods = _likelihoods(model, memory, bias, generated) if with_words else None
    if by_default:  # the first token is the decoder's start token
        generated = [row[: 1 + limit] for row, limit in zip(generated, limits, strict=True)]
    texts = [text.strip() for text in model.tokenizer.batch_decode(generated, skip_special_tokens=True)]
    if likelihoods is None:
        return [Decoded(text) for text in texts]
    decoded = []
    for text, row, values in zip(texts, generated, likelihoods, strict=True):
        ids = row[1:].tolist()
        decoded.append(Decoded(text, tuple(word_scores(model.tokenizer, ids, values[: len(ids)], text))))
    return decoded


def _likelihoods(
    model: NuggetModel, memory: torch.Tensor, bias: torch.Tensor, generated: torch.Tensor
) -> list[list[float]]:
    """Return the log-probability of every decoded token after the first, from one teacher-forced pass."""
    states = model.adapter.decode(memory, bias, generated[:, :-1])
    likelihoods = []
    for row, targets in zip(states, generated[:, 1:], strict=True):
        # One text at a time: the logits of a whole batch may take gigabytes.
        check_cancelled()
        logits = model.adapter.project(row[None])[0].float()
        chosen = logits.gather(-1, targets[:, None])[:, 0]
        likelihoods.append((chosen - logits.logsumexp(-1)).tolist())
    return likelihoods


def _join(nuggets: Nuggets, parts: list[Decoded], with_words: bool) -> Reconstruction:
    """Join decoded windows into one text with the whitespace of the original."""
    starts, ends = nuggets.window_spans.T
    glued = (starts[1:] == ends[:-1]).tolist()
    text, spans = nuggets.layout.join([part.text for part in parts], glued)
    if not with_words:
        return Reconstruction(text, ())
    return join_words(text, spans, [score for part in parts for score in part.scores])
