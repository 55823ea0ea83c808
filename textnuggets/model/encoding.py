"""Encoding of texts into nuggets, in batches of windows of similar length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import CheckpointError, ConfigError, InputError
from textnuggets.io.batching import batches
from textnuggets.io.documents import is_unicode
from textnuggets.io.progress import Progress
from textnuggets.model.budget import Budget
from textnuggets.model.cancelling import check_cancelled
from textnuggets.model.coverage import Coverage
from textnuggets.model.encoder import TextEncoder
from textnuggets.model.layout import Layout
from textnuggets.model.nuggets import Nuggets
from textnuggets.model.padding import pad_rows
from textnuggets.model.windows import Window, cut_into_windows

# Texts are sorted by length within this many batches or characters, whichever is less, to bound memory.
SORTED_BATCHES = 32
SORTED_CHARACTERS = 4_000_000


def as_dtype(name: str) -> np.dtype[np.floating]:
    """Return the NumPy dtype of stored vectors; raise ConfigError if it is not a supported float type."""
    try:
        dtype = np.dtype(name)
    except TypeError:
        dtype = None
    if dtype is None or dtype.name not in ("float32", "float16", "float64"):
        raise ConfigError(f"dtype must be float32, float16 or float64, got {name!r}.")
    return dtype


def encode_stream(
    model: TextEncoder,
    texts: Iterable[str],
    budget: Budget,
    batch_size: int,
    dtype: np.dtype[np.floating],
    progress: Progress,
    coverage: Coverage | None = None,
) -> Iterator[Nuggets]:
    """Encode a stream of texts, with at most one sorted chunk of them in memory.

    Unknown pieces and split words are counted in `coverage`.
    """
    for chunk in batches(checked_texts(texts), batch_size * SORTED_BATCHES, SORTED_CHARACTERS, len):
        cut = cut_into_windows(model.tokenizer, chunk, model.window)
        windows = [window for parts in cut for window in parts]
        if coverage is not None and model.can_decode:
            coverage.add_texts(model.tokenizer, chunk)
        owners = [text for text, parts in enumerate(cut) for _ in parts]
        unfinished = [len(parts) for parts in cut]  # remaining windows of each text
        counts = [k for parts in cut for k in budget.share([len(w.encoding) for w in parts])]
        # Longest first, so that a batch too large for memory fails at once.
        order = sorted(range(len(windows)), key=lambda i: -len(windows[i].encoding))
        encoded: list[Nuggets | None] = [None] * len(windows)
        with model.evaluating():
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                batch = [(windows[i], counts[i]) for i in rows]
                for i, nuggets in zip(rows, _encode_batch(model, batch, dtype, coverage), strict=True):
                    encoded[i] = nuggets
                    unfinished[owners[i]] -= 1
                progress.add(sum(unfinished[text] == 0 for text in {owners[i] for i in rows}))
        remaining = iter(encoded)
        for parts in cut:
            joined = Nuggets.concat([part for _ in parts if (part := next(remaining)) is not None])
            layout = Layout.of(parts[0].text, [(window.start, window.end) for window in parts])
            yield replace(joined, layout=layout, comparable=model.config.comparable)


def checked_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts; raise InputError if one is not a string of valid Unicode."""
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"texts must be strings; text {index} is {type(text).__name__}.")
        if not (text.isascii() or is_unicode(text)):
            raise InputError(f"text {index} contains an unpaired surrogate, so it is not valid Unicode.")
        yield text


def _encode_batch(
    model: TextEncoder,
    batch: list[tuple[Window, int]],
    dtype: np.dtype[np.floating],
    coverage: Coverage | None,
) -> list[Nuggets]:
    """Encode a batch of windows, each with its k, in one forward pass."""
    check_cancelled()
    windows, counts = [window for window, _ in batch], [k for _, k in batch]
    input_ids, mask = pad_rows([w.ids for w in windows], model.pad_id)
    if coverage is not None:
        coverage.add_batch(model.tokenizer, windows, input_ids, mask, model.can_decode)
    sentence_ends = None
    if model.selector.needs_sentence_ends:
        sentence_ends = pad_rows([w.sentence_ends() for w in windows], False)[0].astype(bool)
    computed = model.compute(input_ids, mask, counts, sentence_ends)
    vectors = _finite(computed.vectors, dtype)
    token_scores = _finite(computed.token_scores, np.dtype(np.float32))
    positions = computed.positions
    scores = token_scores[np.arange(len(positions))[:, None], positions]
    return [
        _assemble(window, vectors[i, :k], scores[i, :k], positions[i, :k], model.selector.pools)
        for i, (window, k) in enumerate(zip(windows, computed.kept, strict=True))
    ]


def _finite(values: NDArray[np.float32], dtype: np.dtype[np.floating]) -> NDArray[np.floating]:
    """Return the output of a model in another dtype; raise an error if it is or becomes NaN or infinite."""
    if not np.isfinite(values).all():
        raise CheckpointError(
            "the model returns NaN or infinite vectors: its weights are damaged, or its training diverged."
        )
    with np.errstate(over="ignore"):
        converted = values.astype(dtype, copy=False)
    if converted is not values and not np.isfinite(converted).all():
        raise ConfigError(f"a vector has values beyond the range of {dtype.name}: use dtype float32.")
    return converted


def _assemble(
    window: Window,
    vectors: NDArray[np.floating],
    scores: NDArray[np.float32],
    positions: NDArray[np.int64],
    pooled: bool,
) -> Nuggets:
    """Return the nuggets of one window; arrays are copied so that the batch can be freed."""
    tokens: tuple[str, ...]
    if pooled:  # one vector for the whole window
        spans, tokens = [(window.start, window.end)], (window.text[window.start : window.end],)
    else:
        chosen = positions.tolist()
        spans = [window.span(position) for position in chosen]
        tokens = tuple(window.surface(position) for position in chosen)
    size = [len(vectors), len(window.encoding), window.start, window.end]
    return Nuggets(
        vectors=vectors.copy(),
        scores=scores.copy(),
        positions=positions.copy(),
        spans=np.array(spans, dtype=np.int64).reshape(-1, 2),
        tokens=tokens,
        windows=np.array([size], dtype=np.int64),
    )
