"""A text that grows: its current segment as tokens, everything before as nuggets."""

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
from textnuggets.errors import ConfigError, InputError
from textnuggets.files import replacing
from textnuggets.lm.generating import continue_segment
from textnuggets.lm.history import History, SegmentMemory
from textnuggets.model.identity import fingerprint

if TYPE_CHECKING:
    from textnuggets.lm.modeling import NuggetLM


class Stream:
    """What `NuggetLM.open` returns. Each segment is encoded once, when it is full; its tokens are then let go."""

    def __init__(self, lm: NuggetLM, max_history: int) -> None:
        if lm.config.memory != "nuggets":
            raise ConfigError(f"a memory of {lm.config.memory!r} cannot be streamed: only nuggets can.")
        self.lm = lm
        self.max_history = check_count("max_history", max_history, at_least=0)
        self.past: list[SegmentMemory] = []
        """The memories of finished segments, oldest first, `max_history` at most."""
        self.current: list[int] = []
        """The tokens of the segment that is not finished."""
        self.length = 0
        """How many tokens the text has in all."""

    def append(self, text: str | Sequence[int]) -> None:
        """Go on with a text, or with tokens."""
        ids = self._ids(text)
        room = self.lm.config.segment
        self.length += len(ids)
        pending = [*self.current, *ids]
        full = [pending[start : start + room] for start in range(0, len(pending) - room + 1, room)]
        self.current = pending[len(full) * room :]
        kept = full[-self.max_history :] if self.max_history else []  # older ones would be forgotten at once
        if kept:
            with self.lm.evaluating(), torch.inference_mode():
                self.past += self.lm.remember(kept)
        self.past = self.past[-self.max_history :] if self.max_history else []

    def _ids(self, text: str | Sequence[int]) -> list[int]:
        if isinstance(text, str):
            found: list[int] = self.lm.tokenizer(text, add_special_tokens=False, verbose=False).input_ids
            return found
        return [int(token) for token in text]

    def score(self, text: str | Sequence[int]) -> list[float]:
        """The log-probability of each token of a text that goes on from here; it becomes part of the stream."""
        ids, found = self._ids(text), []
        while ids:
            part = ids[: self.lm.config.segment - len(self.current)]
            ids = ids[len(part) :]
            segment = torch.tensor([[*self.current, *part]], device=self.lm.device)
            with self.lm.evaluating(), torch.inference_mode():
                logits = self.lm(segment, self._history()).logits[0].float().log_softmax(-1)
            place = torch.arange(len(self.current), segment.shape[1])
            found += logits[place, segment[0, place]].tolist()
            self.append(part)
        return found

    def _history(self) -> History | None:
        return History.of([self.past])

    def generate(
        self, max_new_tokens: int, on_tokens: Callable[[str], None] | None = None, **options: Any
    ) -> str:
        """Go on by itself; what it writes becomes part of the stream.

        Args:
            max_new_tokens: How many tokens.
            on_tokens: Called with each new stretch of text; not with beams, which change their mind.
            options: For transformers' `generate`: `do_sample`, `top_p`, `temperature`, `num_beams`, ...
        """
        check_count("max_new_tokens", max_new_tokens, at_least=1)
        written: list[int] = []
        shown = ""
        streams = on_tokens is not None and options.get("num_beams", 1) == 1
        while len(written) < max_new_tokens:
            room = self.lm.config.segment - len(self.current)
            count = min(room, max_new_tokens - len(written))
            listener = (
                _Listener(self, written, shown, on_tokens) if streams and on_tokens is not None else None
            )
            new = self._continue(count, listener, options)
            written += new
            self.append(new)
            if listener is not None:
                shown = listener.shown
        text: str = self.lm.tokenizer.decode(written, skip_special_tokens=True)
        if on_tokens is not None and len(text) > len(shown):
            on_tokens(text[len(shown) :])
        return text

    def _continue(self, count: int, listener: _Listener | None, options: dict[str, Any]) -> list[int]:
        start = self.lm.view.start_token
        begun = torch.tensor([[start, *self.current]], device=self.lm.device)
        history = self._history()
        with self.lm.evaluating(), torch.inference_mode():
            memory = None if history is None else self.lm.memory_of(history)
            if listener is not None:
                options = {**options, "streamer": listener}
            # Nothing ends a text but its length, and what is no text must not be written.
            forbidden = [[token] for token in self.lm.tokenizer.all_special_ids]
            options = {"bad_words_ids": forbidden, **options}
            generated: Tensor = continue_segment(self.lm, begun, memory, count, **options)
        found: list[int] = generated[0, begun.shape[1] :].tolist()
        return found

    # ---------------------------------------------------------------- keeping

    def save(self, path: str | Path) -> None:
        """Write the state, to be continued by `Stream.load`."""
        tensors = {"current": torch.tensor(self.current, dtype=torch.int32)}
        for place, segment in enumerate(self.past):
            tensors[f"vectors.{place}"] = segment.vectors.contiguous()
            tensors[f"scores.{place}"] = segment.scores.contiguous()
        about = {
            "weights": fingerprint(self.lm.nugget),
            "max_history": self.max_history,
            "length": self.length,
            "segments": len(self.past),
        }
        with replacing(Path(path)) as temporary:
            save_file(tensors, temporary, {"textnuggets": json.dumps(about)})

    @classmethod
    def load(cls, lm: NuggetLM, path: str | Path) -> Stream:
        """A state that was saved, of the same model."""
        try:
            with safe_open(path, framework="pt", device=str(lm.device)) as file:
                about = json.loads((file.metadata() or {})["textnuggets"])
                made = cls(lm, about["max_history"])
                made.current = file.get_tensor("current").tolist()
                made.past = [
                    SegmentMemory(file.get_tensor(f"vectors.{place}"), file.get_tensor(f"scores.{place}"))
                    for place in range(about["segments"])
                ]
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise InputError(f"{path} is no saved stream ({error}).") from error
        if about["weights"] != fingerprint(lm.nugget):
            raise InputError(f"{path} was written by a model with other weights.")
        made.length = about["length"]
        return made


class _Listener:
    """What `generate` tells of new tokens: decoded all together, since a word may be several."""

    def __init__(
        self, stream: Stream, written: list[int], shown: str, on_tokens: Callable[[str], None]
    ) -> None:
        self.tokenizer, self.on_tokens = stream.lm.tokenizer, on_tokens
        self.ids, self.shown = list(written), shown
        self._prompt = True

    def put(self, value: Tensor) -> None:
        """New ids; the first call brings the prompt."""
        if self._prompt:
            self._prompt = False
            return
        self.ids += value.flatten().tolist()
        text = self.tokenizer.decode(self.ids, skip_special_tokens=True)
        if len(text) > len(self.shown) and not text.endswith("\ufffd"):
            self.on_tokens(text[len(self.shown) :])
            self.shown = text

    def end(self) -> None:
        """The end of a segment."""
