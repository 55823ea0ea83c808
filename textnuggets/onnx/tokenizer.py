"""OnnxTokenizer: the tokenizer of an exported model, by the library `tokenizers` alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from textnuggets.errors import CheckpointError
from textnuggets.io.panics import catching_panics
from textnuggets.onnx.config import TOKENIZER, OnnxConfig


class Encodings(NamedTuple):
    """Tokenized texts."""

    encodings: list[Any]
    """The `tokenizers.Encoding` of each text."""

    @property
    def input_ids(self) -> list[list[int]]:
        """Token ids of each text."""
        return [encoding.ids for encoding in self.encodings]


class OnnxTokenizer:
    """Tokenizer with the methods of transformers' fast tokenizers that encoding uses."""

    def __init__(self, folder: Path, config: OnnxConfig) -> None:
        from tokenizers import Tokenizer

        try:
            with catching_panics():
                self.backend_tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        except Exception as error:  # tokenizers raises no type of its own
            raise CheckpointError(
                f"{folder / TOKENIZER} cannot be read ({error}): export the model again."
            ) from error
        self.all_special_ids = config.special_ids
        self.unk_token_id = config.unknown_id

    def __call__(self, texts: Sequence[str], **_: Any) -> Encodings:
        """Tokenize texts, with special tokens and without truncation or padding."""
        return Encodings(self.backend_tokenizer.encode_batch(list(texts)))

    def get_vocab(self) -> dict[str, int]:
        """Return the id of every piece."""
        vocabulary: dict[str, int] = self.backend_tokenizer.get_vocab()
        return vocabulary
