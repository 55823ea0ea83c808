"""CausalStream: a growing text in the cache of a decoder-only model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers.generation.streamers import BaseStreamer

from textnuggets.causal.cache import NuggetCache, Waiting
from textnuggets.causal.reader import NuggetReader
from textnuggets.checks import check_count
from textnuggets.errors import ConfigError, InputError
from textnuggets.io.disk import make_folder
from textnuggets.io.files import replacing
from textnuggets.io.states import read_metadata, to_metadata
from textnuggets.model.tokenization import special_frame

Text = str | Sequence[int] | Sequence[Mapping[str, str]]
OWN = ("past_key_values", "max_new_tokens", "streamer", "return_dict_in_generate", "num_return_sequences")
FORMAT = 1


class CausalStream:
    """A growing text, as `CausalNuggetLM.open` returns it; its past is compressed once."""

    def __init__(self, lm: NuggetReader, tokenizer: Any, ratio: float | None = None) -> None:
        self.lm, self.tokenizer = lm, tokenizer
        self.cache = NuggetCache(lm, ratio)
        self.ids: list[int] = []
        """Tokens of the whole text."""

    @property
    def length(self) -> int:
        """Number of tokens in the whole text."""
        return len(self.ids)

    @property
    def size(self) -> int:
        """Number of tokens whose keys and values are in the cache."""
        return self.cache.columns

    @property
    def nbytes(self) -> int:
        """Size of the cache."""
        return self.cache.nbytes

    @property
    def full_nbytes(self) -> int:
        """Size of a cache with the keys and values of all tokens."""
        config: Any = self.lm.base.config
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        return 2 * self.lm.depth * heads * width * self.lm.dtype.itemsize * len(self.ids)

    # ---------------------------------------------------------------- reading

    def append(self, text: Text) -> None:
        """Append a text, tokens or messages of a chat.

        A text is tokenized on its own: split texts between words.
        """
        self._read(self._ids(text), keep=1)

    def _read(self, ids: Sequence[int], keep: int) -> None:
        """Append tokens, and read all but the last `keep`, from which the next token will be predicted."""
        everything = [*self.ids, *ids]
        new = everything[self.cache.length : max(len(everything) - keep, self.cache.length)]
        size = self.lm.config.segment
        try:
            with self.lm.evaluating(), torch.inference_mode():
                for start in range(0, len(new), size):
                    part = torch.tensor([new[start : start + size]], device=self.lm.device)
                    self.lm.read(part, self.cache)
        except BaseException:
            self.ids = everything[
                : max(self.cache.length, len(self.ids))
            ]  # what was read is part of the text
            raise
        self.ids = everything

    def _ids(self, text: Text) -> list[int]:
        if isinstance(text, str):
            found: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids
            # A text begins with the special token that the model expects, such as <bos>, if any.
            return [*special_frame(self.tokenizer)[0], *found] if found and not self.ids else found
        if text and isinstance(text[0], Mapping):
            if not self.tokenizer.chat_template:
                raise InputError("the base has no chat template: give a text instead of messages.")
            found = self.tokenizer.apply_chat_template(
                list(text), add_generation_prompt=True, return_dict=True
            ).input_ids
            return found
        ids = [int(token) for token in text]  # type: ignore[arg-type]
        vocabulary = int(self.lm.base.config.vocab_size)
        if ids and not 0 <= min(ids) <= max(ids) < vocabulary:
            wrong = next(token for token in ids if not 0 <= token < vocabulary)
            raise InputError(f"{wrong} is not a token id of this model: use ids from 0 to {vocabulary - 1}.")
        return ids

    def score(self, text: Text) -> list[float]:
        """Append a text, and return the log-probability of each of its tokens; the first of all has none."""
        ids = self._ids(text)
        before = self.ids[self.cache.length :]
        unread = [*before, *ids]
        scores: list[float] = []
        size = self.lm.config.segment
        with self.lm.evaluating(), torch.inference_mode():
            for place in range(0, len(unread) - 1, size):
                part, following = unread[place : place + size], unread[place + 1 : place + size + 1]
                part = part[: len(following)]  # the last token is read when there is more
                states = self.lm.read(torch.tensor([part], device=self.lm.device), self.cache)
                log = self.lm.project(states)[0].float().log_softmax(-1)
                scores += log[range(len(following)), following].tolist()
        self.ids += ids
        return scores[max(0, len(before) - 1) :]

    # ---------------------------------------------------------------- writing

    def generate(
        self,
        max_new_tokens: int = 200,
        on_tokens: Callable[[str], None] | None = None,
        **options: Any,
    ) -> str:
        """Generate a continuation, append it to the stream, and return its text; greedy by default.

        Args:
            max_new_tokens: Maximum number of tokens to generate.
            on_tokens: Called with each new piece of text; not with beam search.
            options: Options of transformers' `generate`, such as `do_sample`, `top_p` or `eos_token_id`.
        """
        check_count("max_new_tokens", max_new_tokens, at_least=1)
        if clash := sorted(set(OWN) & options.keys()):
            raise ConfigError(f"generate does not take {clash[0]!r} here: it is set by the stream.")
        if not self.ids:
            raise InputError("an empty text cannot be continued: append a text first.")
        if on_tokens is not None and options.get("num_beams", 1) > 1:
            raise ConfigError("on_tokens cannot be used with beam search, which revises its tokens.")
        base: Any = self.lm.base
        ids = torch.tensor([self.ids], device=self.lm.device)
        pad = self.tokenizer.pad_token_id
        settings = {"do_sample": False, "pad_token_id": self.tokenizer.eos_token_id if pad is None else pad}
        if not options.get("do_sample"):  # or transformers warns about those of the base's own configuration
            settings |= {"temperature": None, "top_p": None, "top_k": None}
        beams = check_count("num_beams", options.get("num_beams", 1), at_least=1)
        listener = _Listener(self.tokenizer, self.ids[-1:], on_tokens)
        cache = self.cache if beams == 1 else self.cache.repeated(beams)
        before, new = self.ids[-1:], listener.ids
        try:
            with self.lm.evaluating(), torch.inference_mode():
                output = base.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    past_key_values=cache,
                    max_new_tokens=max_new_tokens,
                    streamer=listener if beams == 1 else None,
                    **{**settings, **options},
                )
            new = output[0, len(self.ids) :].tolist()
        finally:
            if beams == 1:  # what was read is part of the text, also if an error ended it
                self.ids += new
        if beams > 1:
            self._read(new, keep=1)
        return decode_after(self.tokenizer, before, new)

    # ---------------------------------------------------------------- saving

    def save(self, path: str | Path) -> None:
        """Write the text's tokens and its cache, for `CausalStream.load`."""
        cache = self.cache
        tensors = {"ids": torch.tensor(self.ids, dtype=torch.int32)}
        if cache.positions is not None and cache.bias is not None:
            tensors |= {"positions": cache.positions.int(), "bias": cache.bias}
            tensors |= {f"hidden.{number}": rows for number, rows in enumerate(cache.hidden)}
            for number, layer in enumerate(cache.layers):
                tensors |= {f"keys.{number}": layer.keys, f"values.{number}": layer.values}
        if cache.waiting is not None:
            states, positions, scores = cache.waiting
            tensors |= {"waiting.positions": positions.int(), "waiting.scores": scores}
            for number, (keys, values) in enumerate(states):
                tensors |= {f"waiting.keys.{number}": keys, f"waiting.values.{number}": values}
        counts = {"length": cache.length, "current": cache.current, "parts": len(cache.hidden)}
        about = {**self._settings(self.lm), "ratio": cache.ratio, **counts}
        make_folder(Path(path).parent)
        with replacing(Path(path)) as temporary:
            kept = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
            save_file(kept, temporary, to_metadata(about))

    @classmethod
    def load(cls, lm: NuggetReader, tokenizer: Any, path: str | Path) -> CausalStream:
        """Return a saved stream; raise InputError if it was written by a different model."""
        try:
            with safe_open(path, framework="pt", device=str(lm.device)) as file:
                about = read_metadata(file, path, cls._settings(lm))
                stream = cls(lm, tokenizer, about["ratio"])
                stream.ids = file.get_tensor("ids").tolist()
                if about["length"]:
                    stream._restore(file.get_tensor, about)
                if "waiting.scores" in file.keys():  # noqa: SIM118  (not a dictionary)
                    states = [
                        (
                            file.get_tensor(f"waiting.keys.{number}"),
                            file.get_tensor(f"waiting.values.{number}"),
                        )
                        for number in range(lm.depth)
                    ]
                    positions = file.get_tensor("waiting.positions").long()
                    stream.cache.waiting = Waiting(states, positions, file.get_tensor("waiting.scores"))
        except InputError:
            raise
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is not a saved stream ({error}).") from error
        return stream

    def _restore(self, get: Callable[[str], Tensor], about: dict[str, Any]) -> None:
        cache = self.cache
        cache.length, cache.current = about["length"], about["current"]
        cache.positions, cache.bias = get("positions").long(), get("bias")
        cache.hidden = [get(f"hidden.{number}") for number in range(about["parts"])]
        for number, layer in enumerate(cache.layers):
            keys, values = get(f"keys.{number}"), get(f"values.{number}")
            layer.lazy_initialization(keys, values)
            layer.keys, layer.values = keys, values

    @staticmethod
    def _settings(lm: NuggetReader) -> dict[str, Any]:
        """Return what must be equal to resume a stream, since the saved state depends on it."""
        return {
            "format": FORMAT,
            "weights": lm.weights_digest(),
            "base": lm.config.base_weights,
            "segment": lm.config.segment,
            "dtype": str(lm.dtype),
        }


def decode_after(tokenizer: Any, before: list[int], ids: list[int]) -> str:
    """Decode tokens that follow others; decoded alone, they would lose their leading space."""
    prefix: str = tokenizer.decode(before, skip_special_tokens=True)
    whole: str = tokenizer.decode([*before, *ids], skip_special_tokens=True)
    return whole[len(prefix) :]


class _Listener(BaseStreamer):
    """Streamer for `generate`; waits until the text of its tokens is complete."""

    def __init__(self, tokenizer: Any, before: list[int], on_tokens: Callable[[str], None] | None) -> None:
        self.tokenizer, self.before, self.on_tokens = tokenizer, before, on_tokens
        self.ids: list[int] = []
        self.shown = ""
        self._prompt = True

    def put(self, value: Tensor) -> None:
        """Receive new tokens; the first call has the prompt."""
        if self._prompt:
            self._prompt = False
            return
        self.ids += value.flatten().tolist()
        if self.on_tokens is not None:
            self._show(self.on_tokens)

    def end(self) -> None:
        """Pass on the rest, complete or not."""
        if self.on_tokens is not None:
            self._show(self.on_tokens, complete=False)

    def _show(self, on_tokens: Callable[[str], None], complete: bool = True) -> None:
        text = decode_after(self.tokenizer, self.before, self.ids)
        if len(text) > len(self.shown) and not (complete and text.endswith("\ufffd")):
            on_tokens(text[len(self.shown) :])
            self.shown = text
