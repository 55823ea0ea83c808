"""Fast tokenizers with character offsets.

Every supported family has a fast tokenizer in transformers except Marian, whose tokenizer consists of
two SentencePiece models without offsets; an equivalent fast tokenizer is built here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HFValidationError
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from textnuggets.errors import BackboneError, CheckpointError, MissingExtraError
from textnuggets.io.panics import catching_panics
from textnuggets.model.checkpoint import explain_loading

CONTENT = (2.0, 16.0)  # range in nats; pieces of the target side alone have no meaningful probability
UNREACHABLE = -1000.0  # score of pieces of the target side alone, just better than unknown


def load_tokenizer(name: str, model_type: str, **hub: Any) -> PreTrainedTokenizerFast:
    """Load the tokenizer of a backbone or nugget model from a folder or a hub id."""
    if model_type == "marian" and fetch(name, "tokenizer.json", **hub) is None:
        source, vocabulary = fetch(name, "source.spm", **hub), fetch(name, "vocab.json", **hub)
        if source is None or vocabulary is None:
            raise BackboneError(f"{name!r} has no tokenizer: a Marian model needs source.spm and vocab.json.")
        if fetch(name, "target_vocab.json", **hub) is not None:
            raise BackboneError(f"{name!r} has separate vocabularies; only a joint vocabulary is supported.")
        with explain_loading(name):
            return build_marian_tokenizer(source, vocabulary)
    if model_type == "nugget" and fetch(name, "tokenizer.json", **hub) is None:
        # Without it, transformers may build a tokenizer that knows no word.
        raise CheckpointError(f"{name!r} has no tokenizer.json: save or download it again.")
    with explain_loading(name), catching_panics():
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False, **hub)
        return check_tokenizer(tokenizer, name)


def check_tokenizer(tokenizer: Any, name: str) -> PreTrainedTokenizerFast:
    """Return the tokenizer; raise BackboneError if it has no offsets or adds no special token."""
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise BackboneError(
            f"the tokenizer of {name!r} ({type(tokenizer).__name__}) has no character offsets: "
            f"save a fast tokenizer (tokenizer.json) with the model."
        )
    if not tokenizer("").input_ids:
        raise BackboneError(
            f"the tokenizer of {name!r} adds no special token, so an empty text has no tokens: "
            f"add a post-processor that appends {tokenizer.eos_token or 'EOS'!r}."
        )
    return tokenizer


def punctuation_ids(tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """Return the ids of the comma and the period, with or without a preceding space."""
    ids = [
        index
        for token, index in tokenizer.get_vocab().items()
        if token.lstrip("\u2581\u0120").removeprefix("##") in {",", "."}
    ]
    return sorted(ids)


def has_probabilities(tokenizer: PreTrainedTokenizerFast) -> bool:
    """Return whether the pieces of a tokenizer have probabilities, as those of Unigram do."""
    return bool(json.loads(tokenizer.backend_tokenizer.to_str())["model"]["type"] == "Unigram")


def token_content(tokenizer: PreTrainedTokenizerFast, size: int) -> Tensor:
    """Return the `(size,)` content of each token, -log p in nats, from the scores of a Unigram tokenizer."""
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    if model["type"] != "Unigram":
        raise BackboneError(
            f"a selector by content such as 'even_content' needs a Unigram tokenizer, whose pieces have probabilities; "
            f"this one is {model['type']}. Use 'spread' or 'chunking'."
        )
    content = torch.full((size,), CONTENT[1])
    content[: len(model["vocab"])] = -torch.tensor([score for _, score in model["vocab"]])[:size]
    return content.clamp(*CONTENT)


def build_marian_tokenizer(source: Path, vocabulary: Path) -> PreTrainedTokenizerFast:
    """Build a fast tokenizer, with offsets, that is equivalent to `MarianTokenizer`.

    Args:
        source: SentencePiece model of the source language: pieces, scores and normalization.
        vocabulary: `vocab.json` with the joint ids of both languages.
    """
    try:
        from sentencepiece import sentencepiece_model_pb2
    except ImportError as error:
        raise MissingExtraError("sentencepiece", "marian", "a Marian backbone") from error
    proto = sentencepiece_model_pb2.ModelProto.FromString(source.read_bytes())  # type: ignore[attr-defined]
    ids: dict[str, int] = json.loads(vocabulary.read_text(encoding="utf-8"))
    scores = {piece.piece: piece.score for piece in proto.pieces if piece.type == piece.NORMAL}
    pieces = sorted(ids, key=ids.__getitem__)
    tokenizer = Tokenizer(
        models.Unigram([(piece, scores.get(piece, UNREACHABLE)) for piece in pieces], ids["<unk>"], False)
    )
    charsmap = proto.normalizer_spec.precompiled_charsmap
    steps = [normalizers.Precompiled(charsmap)] if charsmap else []
    tokenizer.normalizer = normalizers.Sequence(
        [*steps, normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    end = ids["</s>"]
    tokenizer.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", end)])
    # In models for several target languages, a code such as >>fra<< before the text selects one.
    codes = [piece for piece in pieces if re.fullmatch(r">>.+<<", piece)]
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in ("</s>", "<unk>", "<pad>")]
    )
    tokenizer.add_tokens([AddedToken(code, normalized=False) for code in codes])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>", pad_token="<pad>"
    )


def fetch(name: str, file: str, **hub: Any) -> Path | None:
    """Return the path of a file of a folder or hub repository, or None if it does not exist."""
    folder = Path(name) / hub.get("subfolder", "")
    if folder.is_dir():
        return folder / file if (folder / file).is_file() else None
    try:
        return Path(hf_hub_download(name, file, **hub))
    except (EntryNotFoundError, HFValidationError):  # no such file, or a missing folder
        return None


def special_frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the special ids before and after the tokens of a text, such as <s> and </s>."""
    encoding = tokenizer(["a"], verbose=False).encodings[0]
    ordinary = [i for i, special in enumerate(encoding.special_tokens_mask) if not special]
    return encoding.ids[: ordinary[0]], encoding.ids[ordinary[-1] + 1 :]
