"""Fingerprints and names that identify the model of stored vectors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from textnuggets.io.digest_cache import remember_digest
from textnuggets.io.hashing import digest_bytes, digest_json, short_digest
from textnuggets.model.encoder import TextEncoder
from textnuggets.shipped import DEFAULT, shipped_name

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

# Settings that affect the vectors.
SETTINGS = ("scorer_layer", "selector", "gather", "feedback", "window")
DIGITS = 32
INT8 = "-int8"  # suffix of the fingerprints of models whose weights were rounded to int8
SAMPLED_DIGITS = 16  # of the fingerprints of early versions
CACHED_BYTES = 16_000_000  # smaller models are hashed in less time than it takes to read the cache
BLOCK = 1024  # words that are summed up


def fingerprint(model: PreTrainedModel | TextEncoder) -> str:
    """Return a hash of all weights, the tokenizer and the settings that affect the vectors.

    It does not depend on the model's folder, and weights in half precision have that of their float32 values.
    The hash of a large model is cached. The cache is used only if the files that the model was loaded from have the
    same size and time, and the weights in memory the same checksums.
    """
    if isinstance(model, TextEncoder) and model.recorded_fingerprint is not None:
        return model.recorded_fingerprint
    weights = cast("PreTrainedModel", model)

    def compute() -> str:
        return digest_bytes(*_content(weights, _tokenizer_digest(weights), _digest))[:DIGITS]

    folder = Path(weights.config.name_or_path or "")
    size = sum(value.nbytes for value in weights.state_dict().values())
    if size < CACHED_BYTES or not weights.config.name_or_path or not folder.is_dir():
        return compute()
    checksum = digest_bytes(*_content(weights, _tokenizer_text(weights), _checksum))
    return remember_digest(folder, checksum, compute)


def has_fingerprint(model: PreTrainedModel | TextEncoder, stored: str) -> bool:
    """Return whether a model has the weights of a stored fingerprint.

    It may be one of an early version, which sampled the weights, or of weights rounded to int8.
    """
    if isinstance(model, TextEncoder) and model.recorded_fingerprint is not None:
        return same_weights(model.recorded_fingerprint, stored)
    if is_sampled(stored):
        return _sampled_fingerprint(cast("PreTrainedModel", model)) == stored
    return same_weights(fingerprint(model), stored)


def same_weights(one: str, other: str) -> bool:
    """Return whether two fingerprints are of the same weights, rounded to int8 or not: their vectors can be compared."""
    return one.removesuffix(INT8) == other.removesuffix(INT8)


def is_sampled(stored: str) -> bool:
    """Return whether a stored fingerprint is of an early version."""
    return len(stored) == SAMPLED_DIGITS


def _content(model: PreTrainedModel, tokenizer: str, digest: Callable[[Tensor], bytes]) -> Iterator[bytes]:
    """Yield the settings, a digest or the text of the tokenizer, and a digest of every tensor."""
    yield json.dumps([[getattr(model.config, key, None) for key in SETTINGS], tokenizer]).encode()
    known: dict[Any, bytes] = {}  # tied weights are read once
    for name, value in sorted(model.state_dict().items()):
        place = (value.data_ptr(), value.shape, value.stride(), value.dtype)
        if place not in known or not value.numel():
            known[place] = digest(value.detach().cpu().contiguous())
        yield f"\n{name} {tuple(value.shape)} ".encode() + known[place]


def _digest(value: Tensor) -> bytes:
    """Return a hash of the values of a tensor, independent of its precision."""
    import torch

    wide = value.float() if value.is_floating_point() else value.to(torch.int64)
    return digest_bytes(_bytes(wide).data).encode()


def _checksum(value: Tensor) -> bytes:
    """Return a checksum of a tensor, computed many times faster than a hash: the sums of blocks of its words."""
    data = _bytes(value)
    whole = len(data) // 8 * 8
    words = data[:whole].view(np.uint64)
    sums = np.add.reduceat(words, range(0, len(words), BLOCK)) if whole else words
    return f"{value.dtype} {digest_bytes(sums.tobytes(), data[whole:].tobytes())}".encode()


def _bytes(value: Tensor) -> NDArray[np.uint8]:
    import torch

    data: NDArray[np.uint8] = value.reshape(-1).view(torch.uint8).numpy()
    return data


def _tokenizer_text(model: PreTrainedModel) -> str:
    """Return the tokenizer of a nugget model or language model as JSON; empty without one."""
    tokenizer: Any = getattr(getattr(model, "nugget", model), "_tokenizer", None)
    return "" if tokenizer is None else str(tokenizer.backend_tokenizer.to_str())


def _tokenizer_digest(model: PreTrainedModel) -> str:
    if not (text := _tokenizer_text(model)):
        return ""
    parts = json.loads(text)
    for key in ("version", "truncation", "padding"):  # of the format, and of the last call
        parts.pop(key, None)
    return digest_json(_without_defaults(parts))


def _without_defaults(value: Any) -> Any:
    """Drop null and false values, so that a setting added by a later version of tokenizers changes nothing."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if item is not None and item is not False}
        return {key: _without_defaults(item) for key, item in kept.items()}
    return [_without_defaults(item) for item in value] if isinstance(value, list) else value


def _sampled_fingerprint(model: PreTrainedModel) -> str:
    """Return the fingerprint of early versions: a hash of settings and about a thousand values of every tensor."""

    def parts() -> Iterator[bytes]:
        yield repr([getattr(model.config, key, None) for key in SETTINGS]).encode()
        for key, value in model.state_dict().items():
            sample = value.detach().flatten()[:: max(1, value.numel() // 1024)]
            yield f"{key} {tuple(value.shape)}".encode() + sample.float().cpu().numpy().tobytes()

    return short_digest(parts(), SAMPLED_DIGITS // 2)


def lasting_name(name: str | Path | None) -> str:
    """Return a name valid from any directory: of a shipped model its name, of a folder its absolute path."""
    if name is None:
        return DEFAULT
    shipped = shipped_name(name)
    if shipped is not None:
        return shipped
    path = Path(name)
    return str(path.resolve()) if path.is_dir() else str(name)
