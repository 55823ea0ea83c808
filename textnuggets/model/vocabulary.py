"""Vocabulary trimming: reduce a tokenizer and its model to the pieces that some texts use.

Unused pieces are removed from the tokenizer, the embeddings and the output layer. Texts of the kept
language are tokenized as before, and the model's outputs for them are unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from textnuggets.config import NuggetConfig
from textnuggets.errors import BackboneError
from textnuggets.io.progress import Progress
from textnuggets.model.backbone import build_backbone, load_backbone
from textnuggets.model.checkpoint import explain_loading, load_config
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.tokenization import build_marian_tokenizer, fetch, load_tokenizer, punctuation_ids
from textnuggets.model.trial import check_vocabulary

BATCH = 1000  # texts tokenized at once
ID_LISTS = ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens")


class Trimmed(NamedTuple):
    """Trimmed model and tokenizer; `kept` lists the old id of each new id."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    kept: list[int]
    vocabulary_before: int
    parameters_before: int


def trim(name: str, texts: Iterable[str], spm: Path | None = None, min_count: int = 1) -> Trimmed:
    """Load a backbone or nugget model and keep only the vocabulary that the texts use.

    Args:
        name: Folder or hub id of a backbone or nugget model.
        texts: Texts of the language to keep.
        spm: SentencePiece model that tokenizes texts, for a Marian backbone; its `source.spm` by default.
        min_count: Minimum number of occurrences; rarer pieces are removed and their words split further.
    """
    config = load_config(name)
    if spm is not None:
        vocabulary = fetch(name, "vocab.json")
        if config.model_type != "marian" or vocabulary is None:
            raise BackboneError(
                f"a SentencePiece model is for a Marian backbone; {name!r} is a {config.model_type!r} model."
            )
        tokenizer = build_marian_tokenizer(spm, vocabulary)
    else:
        tokenizer = load_tokenizer(name, config.model_type)
    counts = count_pieces(tokenizer, texts)
    smaller, kept = trim_tokenizer(tokenizer, counts >= min_count)
    with explain_loading(name):
        model: PreTrainedModel
        if isinstance(config, NuggetConfig):
            model = NuggetModel.from_pretrained(name)
        else:
            model = load_backbone(name, config)
    check_vocabulary(tokenizer, model, name)
    return Trimmed(
        trim_model(model, smaller, kept),
        smaller,
        kept,
        vocabulary_before=len(tokenizer),
        parameters_before=model.num_parameters(),
    )


def count_pieces(tokenizer: PreTrainedTokenizerFast, texts: Iterable[str]) -> np.ndarray:
    """Return the `(vocabulary,)` number of occurrences of each id in the texts."""
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    stream = iter(texts)
    with Progress("count") as progress:
        while batch := list(islice(stream, BATCH)):
            ids = np.concatenate(tokenizer(batch, return_attention_mask=False, verbose=False).input_ids)
            counts += np.bincount(ids.astype(np.int64), minlength=len(counts))
            progress.add(len(batch))
    return counts


def trim_tokenizer(
    tokenizer: PreTrainedTokenizerFast, used: np.ndarray
) -> tuple[PreTrainedTokenizerFast, list[int]]:
    """Return a tokenizer of the used pieces, special tokens and single characters, and their old ids.

    Single characters are kept so that every text can still be represented.
    """
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    ids = tokenizer.get_vocab()
    special = {token["id"] for token in spec["added_tokens"]}
    keep = set(np.flatnonzero(used).tolist()) | special
    keep |= {i for piece, i in ids.items() if len(piece.removeprefix("##").lstrip("\u2581\u0120")) <= 1}
    keep |= {i for piece, i in ids.items() if len(piece) == 6 and piece.startswith("<0x")}
    unknown = tokenizer.unk_token_id
    if unknown is not None:
        keep.add(unknown)
    model = spec["model"]
    if model["type"] == "BPE":
        _keep_parents(model["merges"], ids, keep)
    kept = sorted(keep)
    new = {old: i for i, old in enumerate(kept)}
    if model["type"] == "Unigram":
        model["vocab"] = [model["vocab"][i] for i in kept if i < len(model["vocab"])]
        model["unk_id"] = new[model["unk_id"]]
    elif model["type"] in ("WordPiece", "BPE"):
        model["vocab"] = {piece: new[i] for piece, i in model["vocab"].items() if i in new}
    else:
        raise BackboneError(
            f"a {model['type']!r} tokenizer cannot be trimmed: only Unigram, WordPiece and BPE are supported."
        )
    if model["type"] == "BPE":
        pairs = [_pair(merge) for merge in model["merges"]]
        model["merges"] = [[a, b] for a, b in pairs if all(x in model["vocab"] for x in (a, b, a + b))]
    for token in spec["added_tokens"]:
        token["id"] = new[token["id"]]
    _renumber_template(spec["post_processor"], new)
    smaller = deepcopy(tokenizer)
    smaller._tokenizer = Tokenizer.from_str(json.dumps(spec))
    return smaller, kept


def _pair(merge: Any) -> tuple[str, str]:
    """Return the two pieces of a merge, which older files store as one string."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def _keep_parents(merges: list[Any], ids: dict[str, int], keep: set[int]) -> None:
    """Add to `keep` the pieces from which kept byte-pair pieces are merged, recursively."""
    for merge in reversed(merges):  # a piece is merged after its parts
        left, right = _pair(merge)
        if ids.get(left + right) in keep:
            keep |= {ids[left], ids[right]}


def _renumber_template(processor: Any, new: dict[int, int]) -> None:
    """Replace the ids of the special tokens that a post-processor adds."""
    if processor is None:
        return
    for inner in processor.get("processors", []):
        _renumber_template(inner, new)
    for token in processor.get("special_tokens", {}).values():
        token["ids"] = [new[i] for i in token["ids"]]
    for side in ("sep", "cls"):
        if side in processor:
            processor[side][1] = new[processor[side][1]]


def trim_model(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, kept: list[int]
) -> PreTrainedModel:
    """Return the model with only the kept rows of its embeddings and output layer."""
    new = {old: i for i, old in enumerate(kept)}
    config = deepcopy(model.config)
    inner: Any
    smaller: Any
    if isinstance(config, NuggetConfig):
        assert config.backbone is not None
        _renumber(config.backbone, new)
        config.backbone.vocab_size = len(kept)
        config.punctuation_ids = punctuation_ids(tokenizer)
        smaller = NuggetModel(config)
        smaller._tokenizer = tokenizer
        inner, smaller_inner = model.backbone, smaller.backbone
    else:
        _renumber(config, new)
        config.vocab_size = len(kept)
        smaller = build_backbone(config)
        inner, smaller_inner = model, smaller
    if smaller_inner.can_generate():
        smaller_inner.generation_config = deepcopy(inner.generation_config)
        _renumber(smaller_inner.generation_config, new)
    rows = torch.tensor(kept)
    state = model.state_dict()
    for key, value in smaller.state_dict().items():
        if value.shape != state[key].shape:  # tensors with a vocabulary axis
            (along,) = (d for d in range(value.ndim) if value.shape[d] != state[key].shape[d])
            state[key] = state[key].index_select(along, rows)
    smaller.load_state_dict(state)
    return smaller.to(model.dtype).eval()


def _renumber(config: PreTrainedConfig | Any, new: dict[int, int]) -> None:
    """Replace the token ids, single or in lists, in a model or generation configuration."""

    def renumbered(value: Any) -> Any:
        if isinstance(value, list):
            return [renumbered(item) for item in value if not isinstance(item, int) or item in new]
        return new.get(value, value)

    for key, value in list(vars(config).items()):
        if value is not None and (key.endswith("_token_id") or key in ID_LISTS):
            setattr(config, key, renumbered(value))
    if getattr(config, "decoder_vocab_size", None):
        config.decoder_vocab_size = len(new)
