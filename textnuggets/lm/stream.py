"""Stream: a growing text, with its current segment as tokens and its past as nuggets or another memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from textnuggets.checks import check_count
from textnuggets.errors import InputError
from textnuggets.io.disk import make_folder
from textnuggets.io.files import replacing
from textnuggets.io.states import read_metadata, to_metadata
from textnuggets.lm.decoder import SegmentDecoder
from textnuggets.lm.generation import check_options, continue_segment
from textnuggets.lm.memory import History, SegmentMemory
from textnuggets.model.fingerprint import fingerprint

REACH = 1024  # generated tokens that the options against repetition look back on


class Stream:
    """A growing text, as `NuggetLM.open` returns it. Each segment is encoded once, when it is full.

    With the memory `nuggets`, the tokens of encoded segments are dropped; other memories keep the tokens of the last
    `history` segments.
    """

    def __init__(self, lm: SegmentDecoder, history: int) -> None:
        self.lm = lm
        self.history = check_count("history", history, at_least=0)
        lm.check_room(history)
        self.past: list[Any] = []
        """At most `history` finished segments, oldest first: a SegmentMemory or the tokens of each."""
        self.current: list[int] = []
        """Tokens of the unfinished segment."""
        self.last: list[int] = []
        """The last token, if any, needed to decode the space before the next one."""
        self.length = 0
        """Number of tokens in the whole text."""

    @property
    def size(self) -> int:
        """Number of vectors that represent the past."""
        if self.lm.config.memory == "nuggets":
            return sum(len(segment.scores) for segment in self.past)
        tokens = sum(map(len, self.past))
        return tokens // self.lm.config.pooled if self.lm.config.memory == "compressive" else tokens

    def append(self, text: str | Sequence[int]) -> None:
        """Append a text or tokens.

        A text is tokenized on its own, as if it started with a new word: split texts between words.
        """
        ids = self._ids(text)
        room = self.lm.config.segment
        pending = [*self.current, *ids]
        full = [pending[start : start + room] for start in range(0, len(pending) - room + 1, room)]
        kept = full[-self.history :] if self.history else []  # older ones would be dropped below
        past = self.past
        if kept:
            with self.lm.evaluating(), torch.inference_mode():
                past = [*past, *(self.lm.remember(kept) if self.lm.config.memory == "nuggets" else kept)]
        # Assigned last, so that an error leaves the stream unchanged.
        self.past = past[-self.history :] if self.history else []
        self.current, self.last = pending[len(full) * room :], (ids or self.last)[-1:]
        self.length += len(ids)

    def _ids(self, text: str | Sequence[int]) -> list[int]:
        if isinstance(text, str):
            tokens: list[int] = self.lm.tokenizer(text, add_special_tokens=False, verbose=False).input_ids
            return tokens
        ids = [int(token) for token in text]
        vocabulary = int(self.lm.adapter.config.vocab_size)
        if ids and not 0 <= min(ids) <= max(ids) < vocabulary:
            wrong = next(token for token in ids if not 0 <= token < vocabulary)
            raise InputError(f"{wrong} is not a token id of this model: use ids from 0 to {vocabulary - 1}.")
        return ids

    def score(self, text: str | Sequence[int]) -> list[float]:
        """Append a text, and return the log-probability of each of its tokens."""
        ids, scores = self._ids(text), []
        while ids:
            part = ids[: self.lm.config.segment - len(self.current)]
            ids = ids[len(part) :]
            segment = torch.tensor([[*self.current, *part]], device=self.lm.device)
            with self.lm.evaluating(), torch.inference_mode():
                logits = self.lm(segment, **self._past(), logits_to_keep=len(part)).logits[0]
            scores += logits.float().log_softmax(-1)[range(len(part)), part].tolist()
            self.append(part)
        return scores

    def _past(self) -> dict[str, Any]:
        """Return the past as arguments of `SegmentDecoder.forward`."""
        if not self.past:
            return {}
        if self.lm.config.memory == "nuggets":
            return {"history": History.of([self.past])}
        tokens = [token for segment in self.past for token in segment]
        return {"context": torch.tensor([tokens], device=self.lm.device)}

    def generate(
        self, max_new_tokens: int, on_tokens: Callable[[str], None] | None = None, **options: Any
    ) -> str:
        """Generate a continuation, append it to the stream, and return its text, with a leading space if needed.

        Args:
            max_new_tokens: Number of tokens to generate.
            on_tokens: Called with each new piece of text; with beam search, once at the end.
            options: Options of transformers' `generate`: `do_sample`, `top_p`, `temperature`, `num_beams`,
                `no_repeat_ngram_size`, ... Options against repetition look at the current segment and the last
                REACH tokens generated by this call.
        """
        check_count("max_new_tokens", max_new_tokens, at_least=1)
        settings = check_options(self.lm, options)
        before, opening = list(self.last), list(self.current)
        written: list[int] = []
        listener = None
        if on_tokens is not None and settings["num_beams"] == 1:
            listener = _Listener(self.lm.tokenizer, before, on_tokens)
        while len(written) < max_new_tokens:
            count = min(self.lm.config.segment - len(self.current), max_new_tokens - len(written))
            earlier = [*opening, *written]
            earlier = earlier[: len(earlier) - len(self.current)][-REACH:]
            try:
                new = self._continue(count, settings, earlier, listener)
            except BaseException:
                if listener is not None:  # text that was already passed on stays part of the stream
                    self.append(listener.segment)
                raise
            written += new
            self.append(new)
        text = decode_after(self.lm.tokenizer, before, written)
        if listener is not None:
            listener.show_rest()
        elif on_tokens is not None:
            on_tokens(text)
        return text

    def _continue(
        self,
        count: int,
        settings: dict[str, Any],
        earlier: Sequence[int] = (),
        listener: _Listener | None = None,
    ) -> list[int]:
        """Generate `count` tokens of the current segment, which must have room for them."""
        prompt = torch.tensor([[self.lm.adapter.start_token, *self.current]], device=self.lm.device)
        with self.lm.evaluating(), torch.inference_mode():
            generated = continue_segment(
                self.lm, prompt, count, settings, earlier, **self._past(), streamer=listener
            )
        tokens: list[int] = generated[0].tolist()
        return tokens

    # ---------------------------------------------------------------- saving

    def save(self, path: str | Path) -> None:
        """Write the state of the stream, for `Stream.load`."""
        tensors = {
            "current": torch.tensor(self.current, dtype=torch.int32),
            "last": torch.tensor(self.last, dtype=torch.int32),
        }
        for i, segment in enumerate(self.past):
            if self.lm.config.memory == "nuggets":
                tensors[f"vectors.{i}"] = segment.vectors.contiguous()
                tensors[f"scores.{i}"] = segment.scores.contiguous()
            else:
                tensors[f"tokens.{i}"] = torch.tensor(segment, dtype=torch.int32)
        about = {
            **self._settings(self.lm),
            "max_history": self.history,
            "length": self.length,
            "segments": len(self.past),
        }
        make_folder(Path(path).parent)
        with replacing(Path(path)) as temporary:
            save_file(tensors, temporary, to_metadata(about))

    @classmethod
    def load(cls, lm: SegmentDecoder, path: str | Path) -> Stream:
        """Return a saved stream; raise InputError if it was written by a different model."""
        try:
            with safe_open(path, framework="pt", device=str(lm.device)) as file:
                about = read_metadata(file, path, cls._settings(lm))
                stream = cls(lm, about["max_history"])
                stream.length = about["length"]
                stream.current, stream.last = (file.get_tensor(name).tolist() for name in ("current", "last"))
                for i in range(about["segments"]):
                    if lm.config.memory == "nuggets":
                        parts = (file.get_tensor(f"{name}.{i}") for name in ("vectors", "scores"))
                        stream.past.append(SegmentMemory(*parts))
                    else:
                        stream.past.append(file.get_tensor(f"tokens.{i}").tolist())
        except InputError:
            raise
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is not a saved stream ({error}).") from error
        return stream

    @staticmethod
    def _settings(lm: SegmentDecoder) -> dict[str, Any]:
        """Return the settings that must be equal to resume a stream, since the saved state depends on them."""
        config = lm.config
        return {
            "weights": f"{fingerprint(lm)} {fingerprint(lm.nugget)}",
            "memory": config.memory,
            "segment": config.segment,
            "ratio": config.nugget.ratio,  # type: ignore[union-attr]
        }


def decode_after(tokenizer: Any, before: list[int], ids: list[int]) -> str:
    """Decode tokens that follow others; decoded alone, they would lose their leading space."""
    prefix: str = tokenizer.decode(before, skip_special_tokens=True)
    whole: str = tokenizer.decode([*before, *ids], skip_special_tokens=True)
    return whole[len(prefix) :]


class _Listener:
    """Streamer for `generate`; decodes all tokens of a segment together, since a word may have several."""

    def __init__(self, tokenizer: Any, before: list[int], on_tokens: Callable[[str], None]) -> None:
        self.tokenizer, self.before, self.on_tokens = tokenizer, before, on_tokens
        self.ids: list[int] = []
        """Tokens after `before`."""
        self.shown = ""
        """The part of their text that was passed on."""
        self.segment: list[int] = []
        """Tokens generated in the current segment."""
        self._prompt = True

    def put(self, value: Tensor) -> None:
        """Receive new tokens; the first call for each segment has its prompt."""
        if self._prompt:
            self._prompt = False
            return
        new = value.flatten().tolist()
        self.segment += new
        self.ids += new
        if not self._text().endswith("\ufffd"):  # an incomplete character; wait for its other tokens
            self.show_rest()

    def end(self) -> None:
        """Finish a segment; drop its tokens if all of their text was passed on."""
        self._prompt, self.segment = True, []
        if self.shown == self._text():
            self.before, self.ids, self.shown = self.ids[-1:] or self.before, [], ""

    def show_rest(self) -> None:
        """Pass on the text that was not passed on yet."""
        text = self._text()
        if len(text) > len(self.shown):
            self.on_tokens(text[len(self.shown) :])
            self.shown = text

    def _text(self) -> str:
        return decode_after(self.tokenizer, self.before, self.ids)
