"""Nuggets back into texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from textnuggets.config import ResidualMode
from textnuggets.errors import BackboneError, InputError
from textnuggets.model.nuggets import Nuggets
from textnuggets.model.residual import residual_bias
from textnuggets.progress import Progress

if TYPE_CHECKING:
    from textnuggets.model.modeling import NuggetModel

# A target may be longer than its source: a translation, or another tokenization of the same text.
LENGTH_FACTOR, LENGTH_SLACK = 1.5, 16


def reconstruct_all(
    model: NuggetModel,
    nuggets: Sequence[Nuggets],
    batch_size: int,
    residual: ResidualMode,
    progress: Progress,
    options: dict[str, Any],
) -> list[str]:
    """Decode every window on its own, longest first, and join the windows of each text."""
    check_decodable(model, nuggets)
    windows = [window for item in nuggets for window in _windows(item)]
    # An empty stretch of text comes back empty: the decoder would make something up.
    full = [i for i, window in enumerate(windows) if window.windows[0, 3] > window.windows[0, 2]]
    order = sorted(full, key=lambda i: -int(windows[i].windows[0, 1]))
    decoded = [""] * len(windows)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        texts = _decode_batch(model, [windows[i] for i in rows], residual, options)
        for i, text in zip(rows, texts, strict=True):
            decoded[i] = text
        progress.add(len(rows))
    remaining = iter(decoded)
    return [_join(item, [next(remaining) for _ in item.windows]) for item in nuggets]


def check_decodable(model: NuggetModel, nuggets: Sequence[Nuggets]) -> None:
    """Whether these nuggets can have come from this model, and it has a decoder."""
    if not model.view.family.decodes:
        raise BackboneError(
            f"a {model.view.config.model_type} backbone has no decoder, so its nuggets can be searched "
            f"but not turned back into text. Build the model on bart, mbart, marian, pegasus or t5."
        )
    for index, item in enumerate(nuggets):
        if item.vectors.shape[-1] != model.view.hidden_size:
            raise InputError(
                f"nuggets {index} have {item.vectors.shape[-1]} dimensions, this model "
                f"{model.view.hidden_size}: they were made by another model."
            )


def _windows(nuggets: Nuggets) -> list[Nuggets]:
    """Split joined nuggets into those of each window."""
    stops = np.cumsum(nuggets.windows[:, 0])
    parts = []
    for (count, *_), stop, window in zip(nuggets.windows, stops, nuggets.windows, strict=True):
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
    model: NuggetModel, windows: list[Nuggets], residual: ResidualMode, options: dict[str, Any]
) -> list[str]:
    k_max = max(len(window) for window in windows)
    vectors = torch.zeros(len(windows), k_max, model.view.hidden_size)
    scores = torch.zeros(len(windows), k_max)
    kept = torch.zeros(len(windows), k_max, dtype=torch.bool)
    for i, window in enumerate(windows):
        vectors[i, : len(window)] = torch.from_numpy(window.vectors.astype(np.float32))
        scores[i, : len(window)] = torch.from_numpy(window.scores.astype(np.float32))
        kept[i, : len(window)] = True
    # Room for each text by its own length, so that it does not depend on what shares the batch.
    most = model.decoder_window - 1
    rooms = [min(int(LENGTH_FACTOR * n) + LENGTH_SLACK, most) for n in (w.token_count for w in windows)]
    own_limit = not {"max_new_tokens", "max_length"} & options.keys()
    if own_limit:
        options = {**options, "max_new_tokens": max(rooms)}
    device, dtype = model.device, model.dtype
    with torch.inference_mode():
        generated: Any = model.view.generate(
            vectors.to(device, dtype),
            residual_bias(scores.to(device), kept.to(device), residual, model.view.residual_scale, dtype),
            **options,
        )
    if own_limit:  # the first token is the decoder's start
        generated = [row[: 1 + room] for row, room in zip(generated, rooms, strict=True)]
    texts: list[str] = model.tokenizer.batch_decode(generated, skip_special_tokens=True)
    return [text.strip() for text in texts]


def _join(nuggets: Nuggets, parts: list[str]) -> str:
    """Windows back into one text: a space where there was white space, nothing where there was none."""
    text = parts[0]
    for part, before, after in zip(parts[1:], nuggets.windows[:-1, 3], nuggets.windows[1:, 2], strict=True):
        text += (" " if after > before else "") + part
    return text
