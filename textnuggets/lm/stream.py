"""A text that grows: its current segment as tokens, everything before as nuggets (or what else the model remembers)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from textnuggets.config import check_count
from textnuggets.errors import InputError
from textnuggets.io.files import replacing
from textnuggets.lm.generation import check_options, continue_segment
from textnuggets.lm.memory import History, SegmentMemory
from textnuggets.model.fingerprint import fingerprint

if TYPE_CHECKING:
    from textnuggets.lm.modeling import NuggetLM

REACH = 1024  # tokens of its own that a text is not to repeat


class Stream:
    """What `NuggetLM.open` returns. Each segment is encoded once, when it is full; its tokens are then let go.

    Models whose memory is no nuggets keep the tokens of `history` segments.
    """

    def __init__(self, lm: NuggetLM, history: int) -> None:
        self.lm = lm
        self.history = check_count("history", history, at_least=0)
        lm.check_room(history)
        self.past: list[Any] = []
        """What is kept of finished segments, oldest first, `history` at most: a SegmentMemory or tokens."""
        self.current: list[int] = []
        """The tokens of the segment that is not finished."""
        self.last: list[int] = []
        """The last token, if there is one: whether a space comes next depends on it."""
        self.length = 0
        """How many tokens the text has in all."""

    @property
    def size(self) -> int:
        """How many vectors the past is read as."""
        if self.lm.config.memory == "nuggets":
            return sum(len(segment.scores) for segment in self.past)
        tokens = sum(map(len, self.past))
        return tokens // self.lm.config.pooled if self.lm.config.memory == "compressive" else tokens

    def append(self, text: str | Sequence[int]) -> None:
        """Go on with a text, or with tokens.

        A text is tokenized by itself, as if a word began there: cut a text that comes in pieces between words.
        """
        ids = self._ids(text)
        room = self.lm.config.segment
        pending = [*self.current, *ids]
        full = [pending[start : start + room] for start in range(0, len(pending) - room + 1, room)]
        kept = full[-self.history :] if self.history else []  # older ones would be forgotten at once
        past = self.past
        if kept:
            with self.lm.evaluating(), torch.inference_mode():
                past = [*past, *(self.lm.remember(kept) if self.lm.config.memory == "nuggets" else kept)]
        # Last of all, so that whatever fails leaves the stream as it was.
        self.past = past[-self.history :] if self.history else []
        self.current, self.last = pending[len(full) * room :], (ids or self.last)[-1:]
        self.length += len(ids)

    def _ids(self, text: str | Sequence[int]) -> list[int]:
        if isinstance(text, str):
            found: list[int] = self.lm.tokenizer(text, add_special_tokens=False, verbose=False).input_ids
            return found
        ids = [int(token) for token in text]
        vocabulary = int(self.lm.adapter.config.vocab_size)
        if ids and not 0 <= min(ids) <= max(ids) < vocabulary:
            wrong = next(token for token in ids if not 0 <= token < vocabulary)
            raise InputError(f"{wrong} is no token of this model: ids go from 0 to {vocabulary - 1}.")
        return ids

    def score(self, text: str | Sequence[int]) -> list[float]:
        """The log-probability of each token of a text that goes on from here; it becomes part of the stream."""
        ids, found = self._ids(text), []
        while ids:
            part = ids[: self.lm.config.segment - len(self.current)]
            ids = ids[len(part) :]
            segment = torch.tensor([[*self.current, *part]], device=self.lm.device)
            with self.lm.evaluating(), torch.inference_mode():
                logits = self.lm(segment, **self._past(), logits_to_keep=len(part)).logits[0]
            found += logits.float().log_softmax(-1)[range(len(part)), part].tolist()
            self.append(part)
        return found

    def _past(self) -> dict[str, Any]:
        """The past as `NuggetLM.forward` takes it."""
        if not self.past:
            return {}
        if self.lm.config.memory == "nuggets":
            return {"history": History.of([self.past])}
        tokens = [token for segment in self.past for token in segment]
        return {"context": torch.tensor([tokens], device=self.lm.device)}

    def generate(
        self, max_new_tokens: int, on_tokens: Callable[[str], None] | None = None, **options: Any
    ) -> str:
        """Go on by itself; what it writes becomes part of the stream, and begins with a space where one belongs.

        Args:
            max_new_tokens: How many tokens.
            on_tokens: Called with each new stretch of text; with beams, which change their mind, at the end.
            options: How tokens are chosen, as transformers' `generate` takes it: `do_sample`, `top_p`, `temperature`,
                `num_beams`, `no_repeat_ngram_size`, ... Repetition is looked for in the current segment and the last
                REACH tokens this call has written.
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
                if listener is not None:  # what was shown is part of the text, though it was interrupted
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
        """Tokens that go on with the current segment, which has room for them."""
        begun = torch.tensor([[self.lm.adapter.start_token, *self.current]], device=self.lm.device)
        with self.lm.evaluating(), torch.inference_mode():
            generated = continue_segment(
                self.lm, begun, count, settings, earlier, **self._past(), streamer=listener
            )
        found: list[int] = generated[0].tolist()
        return found

    # ---------------------------------------------------------------- keeping

    def save(self, path: str | Path) -> None:
        """Write the state, to be continued by `Stream.load`."""
        tensors = {
            "current": torch.tensor(self.current, dtype=torch.int32),
            "last": torch.tensor(self.last, dtype=torch.int32),
        }
        for place, segment in enumerate(self.past):
            if self.lm.config.memory == "nuggets":
                tensors[f"vectors.{place}"] = segment.vectors.contiguous()
                tensors[f"scores.{place}"] = segment.scores.contiguous()
            else:
                tensors[f"tokens.{place}"] = torch.tensor(segment, dtype=torch.int32)
        about = {
            **self._settings(self.lm),
            "max_history": self.history,
            "length": self.length,
            "segments": len(self.past),
        }
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with replacing(Path(path)) as temporary:
            save_file(tensors, temporary, {"textnuggets": json.dumps(about)})

    @classmethod
    def load(cls, lm: NuggetLM, path: str | Path) -> Stream:
        """A state that was saved, of the same model."""
        try:
            with safe_open(path, framework="pt", device=str(lm.device)) as file:
                about = json.loads((file.metadata() or {})["textnuggets"])
                for key, own in cls._settings(lm).items():
                    if about[key] != own:
                        raise InputError(
                            f"{path} was written by a model with other {key}: {about[key]}, not {own}."
                        )
                made = cls(lm, about["max_history"])
                made.length = about["length"]
                made.current, made.last = (file.get_tensor(name).tolist() for name in ("current", "last"))
                for place in range(about["segments"]):
                    if lm.config.memory == "nuggets":
                        parts = (file.get_tensor(f"{name}.{place}") for name in ("vectors", "scores"))
                        made.past.append(SegmentMemory(*parts))
                    else:
                        made.past.append(file.get_tensor(f"tokens.{place}").tolist())
        except InputError:
            raise
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is no saved stream ({error}).") from error
        return made

    @staticmethod
    def _settings(lm: NuggetLM) -> dict[str, Any]:
        """What must be the same where a stream goes on: other vectors, or other places in a segment, would be read."""
        config = lm.config
        return {
            "weights": f"{fingerprint(lm)} {fingerprint(lm.nugget)}",
            "memory": config.memory,
            "segment": config.segment,
            "ratio": config.nugget.ratio,  # type: ignore[union-attr]
        }


def decode_after(tokenizer: Any, before: list[int], ids: list[int]) -> str:
    """The text of tokens that follow others: alone, they would lose the space they begin with."""
    known: str = tokenizer.decode(before, skip_special_tokens=True)
    whole: str = tokenizer.decode([*before, *ids], skip_special_tokens=True)
    return whole[len(known) :]


class _Listener:
    """What `generate` tells of new tokens: a segment is decoded together, since a word may be several."""

    def __init__(self, tokenizer: Any, before: list[int], on_tokens: Callable[[str], None]) -> None:
        self.tokenizer, self.before, self.on_tokens = tokenizer, before, on_tokens
        self.ids: list[int] = []
        """Tokens after `before`."""
        self.shown = ""
        """What was shown of them."""
        self.segment: list[int] = []
        """Tokens of the segment that is being written."""
        self._prompt = True

    def put(self, value: Tensor) -> None:
        """New ids; the first call for a segment brings what it begins with."""
        if self._prompt:
            self._prompt = False
            return
        new = value.flatten().tolist()
        self.segment += new
        self.ids += new
        if not self._text().endswith("\ufffd"):  # a character may be several tokens, too
            self.show_rest()

    def end(self) -> None:
        """The segment is written. What is shown of it whole need not be decoded again and again."""
        self._prompt, self.segment = True, []
        if self.shown == self._text():
            self.before, self.ids, self.shown = self.ids[-1:] or self.before, [], ""

    def show_rest(self) -> None:
        """Whatever was not shown yet."""
        text = self._text()
        if len(text) > len(self.shown):
            self.on_tokens(text[len(self.shown) :])
            self.shown = text

    def _text(self) -> str:
        return decode_after(self.tokenizer, self.before, self.ids)
