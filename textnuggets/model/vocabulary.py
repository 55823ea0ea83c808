"""A vocabulary cut down to what some texts use, and the model with it.

Pieces that no text uses are left out of the tokenizer, the embeddings and the output layer. Texts of
the kept language are cut into the same pieces as before, and the model computes the same for them.
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

BATCH = 1000  # texts tokenized at once
ID_LISTS = ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens")


class Trimmed(NamedTuple):
    """A smaller model and its tokenizer; `kept` are the old ids of the new ones, in order."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    kept: list[int]
    vocabulary_before: int
    parameters_before: int


def trim(name: str, texts: Iterable[str], spm: Path | None = None, min_count: int = 1) -> Trimmed:
    """Load a backbone or nugget model and keep only the vocabulary that texts use.

    Args:
        name: Folder or hub id of a backbone or of a nugget model.
        texts: Texts of the language to keep.
        spm: For a Marian backbone, the SentencePiece model that cuts texts into pieces; its own
            `source.spm` by default.
        min_count: Pieces that occur less often are left out, and their words cut into smaller ones.
    """
    config = load_config(name)
    if spm is not None:
        vocabulary = fetch(name, "vocab.json")
        if config.model_type != "marian" or vocabulary is None:
            raise BackboneError(f"a SentencePiece model goes with a Marian backbone; {name!r} is none.")
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
    return Trimmed(
        trim_model(model, smaller, kept),
        smaller,
        kept,
        vocabulary_before=len(tokenizer),
        parameters_before=model.num_parameters(),
    )


def count_pieces(tokenizer: PreTrainedTokenizerFast, texts: Iterable[str]) -> np.ndarray:
    """How often each id of the vocabulary occurs in the texts, `(vocabulary,)`."""
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
    """A tokenizer with the used pieces, special tokens and single characters, and their old ids.

    Single characters stay, so that what could be written before can be written still.
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
        raise BackboneError(f"a tokenizer of the kind {model['type']!r} cannot be trimmed.")
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
    """A merge of two pieces, which older files write as one string."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def _keep_parents(merges: list[Any], ids: dict[str, int], keep: set[int]) -> None:
    """Byte-pair pieces are made of smaller ones, step by step: each step must stay possible."""
    for merge in reversed(merges):  # a piece is made after its parts
        left, right = _pair(merge)
        if ids.get(left + right) in keep:
            keep |= {ids[left], ids[right]}


def _renumber_template(processor: Any, new: dict[int, int]) -> None:
    """Give the special tokens that stand around a text their new ids."""
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
    """The same model with those rows of its embeddings and output layer that are kept."""
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
        if value.shape != state[key].shape:  # what the vocabulary made smaller
            (along,) = (d for d in range(value.ndim) if value.shape[d] != state[key].shape[d])
            state[key] = state[key].index_select(along, rows)
    smaller.load_state_dict(state)
    return smaller.to(model.dtype).eval()


def _renumber(config: PreTrainedConfig | Any, new: dict[int, int]) -> None:
    """Token ids in a model's or generation's configuration, as numbers or lists of them."""

    def renumbered(value: Any) -> Any:
        if isinstance(value, list):
            return [renumbered(item) for item in value if not isinstance(item, int) or item in new]
        return new.get(value, value)

    for key, value in list(vars(config).items()):
        if value is not None and (key.endswith("_token_id") or key in ID_LISTS):
            setattr(config, key, renumbered(value))
    if getattr(config, "decoder_vocab_size", None):
        config.decoder_vocab_size = len(new)
