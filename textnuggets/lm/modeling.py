"""NuggetLM: a decoder that reads its segment by self-attention and the nuggets of the past by cross-attention.

    p(y_i | y_<i of the segment, Nugget(segment - h), ..., Nugget(segment - 1))

Every segment is encoded on its own. Without history the decoder runs without cross-attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, DynamicCache, PreTrainedModel
from transformers import initialization as init

from textnuggets.config import check_ratio
from textnuggets.errors import BackboneError, CheckpointError, ConfigError
from textnuggets.lm.config import Memory, NuggetLMConfig
from textnuggets.lm.delta import read_difference, write_difference
from textnuggets.lm.memory import History, SegmentMemory
from textnuggets.model.backbone import backbone_window
from textnuggets.model.checkpoint import (
    best_device,
    check_complete,
    explain_loading,
    hub_options,
    quiet_loading,
)
from textnuggets.model.encoding import pad
from textnuggets.model.loss import SampledClasses, decoding_loss
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.outputs import NuggetOutput
from textnuggets.model.residual import residual_bias
from textnuggets.model.selection import nugget_count
from textnuggets.model.tokenization import load_tokenizer, special_frame
from textnuggets.shipped import locate

if TYPE_CHECKING:
    from textnuggets.lm.stream import Stream

AGES = 64  # segments that are told apart by how long ago they were; older ones count as the oldest
BATCH = 32  # segments encoded together


class NuggetLM(PreTrainedModel):
    """A language model whose past is nuggets."""

    config: NuggetLMConfig
    config_class = NuggetLMConfig
    base_model_prefix = "lm"
    main_input_name = "input_ids"
    accepts_loss_kwargs = True
    _supports_sdpa = True

    def __init__(self, config: NuggetLMConfig, nugget: NuggetModel | None = None) -> None:
        super().__init__(config)
        if config.nugget is None:
            raise ConfigError("this NuggetLMConfig has no nugget model: use NuggetLM.from_nuggets.")
        self.nugget = NuggetModel(config.nugget) if nugget is None else nugget
        if not self.nugget.can_decode:
            raise BackboneError(
                f"a {self.nugget.adapter.config.model_type} backbone has no decoder to model language with."
            )
        if config.memory == "nuggets" and self.nugget.selector.needs_sentence_ends:
            raise ConfigError(
                f"segments are tokens without sentences: the selector {self.nugget.selector.name!r} cannot choose."
            )
        # How long ago a nugget's segment was, which cross-attention cannot tell otherwise. Starts at zero.
        self.ages = nn.Embedding(AGES, self.nugget.adapter.hidden_size)
        self.post_init()

    # ---------------------------------------------------------------- making and keeping

    @classmethod
    def from_nuggets(
        cls,
        model: NuggetModel,
        segment: int = 128,
        history: int = 8,
        memory: Memory = "nuggets",
        pooled: int = 16,
    ) -> Self:
        """A language model that starts from a trained nugget model, whose encoder and decoder it takes over."""
        made = cls(NuggetLMConfig(model.config, segment, history, memory, pooled), model)
        made.check_room(history)
        frame = sum(map(len, special_frame(model.tokenizer)))
        if memory == "nuggets" and segment + frame > (room := backbone_window(model.adapter.config)):
            raise ConfigError(
                f"a segment of {segment} tokens and {frame} around it; the encoder has room for {room}."
            )
        made.ages.to(device=model.device, dtype=model.dtype)
        return made.eval()

    def check_room(self, history: int) -> None:
        """Whether the decoder has positions for everything that self-attention reads."""
        needed = self.config.segment
        if self.config.memory == "tokens":
            needed *= 1 + history
        elif self.config.memory == "compressive":
            needed += history * needed // self.config.pooled
        if needed > (room := self.nugget.decoder_window):
            raise ConfigError(f"{needed} positions are needed, and the decoder has {room}.")

    @classmethod
    def from_pretrained(cls, name: str | Path, *args: Any, **options: Any) -> Self:  # type: ignore[override]
        """Load a saved language model: a shipped one by name, a folder or a hub id."""
        name = locate(name)
        hub = hub_options(options)
        with explain_loading(str(name)), quiet_loading():
            found, _ = NuggetLMConfig.get_config_dict(str(name), **hub)
            if (kind := found.get("model_type")) != NuggetLMConfig.model_type:
                raise CheckpointError(f"{str(name)!r} is a {kind!r} model, not a language model of nuggets.")
            if found.get("base"):
                given = options.pop("config", None)  # as AutoModel has it
                config = deepcopy(given) or NuggetLMConfig(**found)
                return read_difference(cls, str(name), config, hub, **options)
            loaded: Any = super().from_pretrained(
                str(name), *args, use_safetensors=True, output_loading_info=True, **options
            )
        model, report = loaded
        check_complete(str(name), report["missing_keys"])
        model.nugget._tokenizer = load_tokenizer(str(name), "nugget", **hub)
        with explain_loading(str(name)):
            model.nugget.adapter.load_generation_config(str(name), **hub)
        model.nugget._freeze()
        return model

    def save_difference(self, path: str | Path, base: str, original: NuggetModel) -> None:
        """Write only what differs from a nugget model that the reader has, as int8.

        Args:
            path: The folder.
            base: The name by which `textnuggets.load` finds that model.
            original: That model.
        """
        write_difference(self, Path(path), base, original)

    def save_pretrained(self, path: str | Path, **options: Any) -> None:  # type: ignore[override]
        """Write `config.json`, safetensors and the tokenizer."""
        super().save_pretrained(str(path), **options)
        if options.get("is_main_process", True):
            self.tokenizer.save_pretrained(str(path))
            self.nugget.adapter.save_generation_config(Path(path))

    def _init_weights(self, module: nn.Module) -> None:
        if module is getattr(self, "ages", None):
            init.zeros_(module.weight)

    @property
    def tokenizer(self) -> Any:
        """The nugget model's."""
        return self.nugget.tokenizer

    @property
    def adapter(self) -> Any:
        """The backbone, seen as the nugget model sees it."""
        return self.nugget.adapter

    @property
    def pad_id(self) -> int:
        """The id padding is filled with."""
        return self.nugget.pad_id

    def get_input_embeddings(self) -> nn.Module:
        """The backbone's token embeddings."""
        return self.nugget.get_input_embeddings()

    # ---------------------------------------------------------------- the past

    def remember(self, segments: Sequence[Sequence[int]], ratio: float | None = None) -> list[SegmentMemory]:
        """The nuggets of finished segments, each encoded on its own, with the tokens that close a text."""
        ratio = self.config.nugget.ratio if ratio is None else check_ratio(ratio)  # type: ignore[union-attr]
        before, after = special_frame(self.tokenizer)
        found: list[SegmentMemory] = []
        for start in range(0, len(segments), BATCH):
            closed = [[*before, *ids, *after] for ids in segments[start : start + BATCH]]
            ids, mask = (part.to(self.device) for part in pad(closed, self.pad_id))
            made = self.nugget.generate_nuggets(ids, mask, nugget_count(mask.sum(-1), ratio))
            for row, kept in enumerate(made.selection.kept.sum(-1).tolist()):
                found.append(SegmentMemory(made.nuggets[row, :kept], made.scores[row, :kept]))
        return found

    # ---------------------------------------------------------------- predicting

    def forward(
        self,
        input_ids: Tensor,
        history: History | None = None,
        context: Tensor | None = None,
        ratio: float | None = None,
        labels: Tensor | None = None,
        classes: SampledClasses | None = None,
        num_items_in_batch: Tensor | int | None = None,
        logits_to_keep: int = 0,
    ) -> NuggetOutput:
        """Predict the tokens of segments.

        Args:
            input_ids: `(batch, n)` segments; what is padding must not count in `labels`.
            history: The memories of the segments before, if they are nuggets that are known already.
            context: `(batch, m)` or else the tokens of the segments before, as many of them for every row.
            ratio: Compression ratio of `context`; the nugget model's own by default.
            labels: `(batch, n)` the same tokens; -100 does not count.
            classes: The part of the vocabulary to decide between, for a sampled softmax.
            num_items_in_batch: What the summed loss is divided by; the number of targets by default.
            logits_to_keep: Predict only the last so many tokens, which saves most of the time over a large
                vocabulary; 0 is all.

        Returns:
            `logits` `(batch, n, vocabulary)`, the i-th of which predicts the i-th token, and `loss`.
        """
        begun = self.begin(input_ids)
        if context is not None and context.shape[1] and self.config.memory == "tokens":
            joined = self.begin(torch.cat([context, input_ids], dim=1))
            states = self._decode(joined)[:, context.shape[1] :]
        elif context is not None and context.shape[1] and self.config.memory == "compressive":
            states = self._decode(begun, cache=self.compress(context))
        elif context is not None and context.shape[1]:
            past = [row.split(self.config.segment) for row in context]
            made = iter(self.remember([part.tolist() for row in past for part in row], ratio))
            states = self._decode_with(History.of([[next(made) for _ in row] for row in past]), begun)  # type: ignore[arg-type]
        elif history is None:
            states = self._decode(begun)
        else:
            states = self._decode_with(history, begun)
        if logits_to_keep:
            states = states[:, -logits_to_keep:]
            labels = None if labels is None else labels[:, -logits_to_keep:]
        logits = self.adapter.project(states, None if classes is None else classes.ids)
        loss = None if labels is None else decoding_loss(logits, labels, classes, num_items_in_batch)
        return NuggetOutput(loss=loss, logits=logits)

    def begin(self, ids: Tensor) -> Tensor:
        """What the decoder reads to predict tokens: its start token, then all of them but the last."""
        start = torch.full_like(ids[:, :1], self.adapter.start_token)
        return torch.cat([start, ids[:, :-1]], dim=1)

    def _decode_with(self, history: History, begun: Tensor) -> Tensor:
        """Rows with a past read it; those without run as if there were no cross-attention."""
        remembers = history.kept.any(1)
        if bool(remembers.all()):
            return self._read(history, begun)
        states = torch.empty(*begun.shape, self.adapter.hidden_size, device=begun.device, dtype=self.dtype)
        if bool(remembers.any()):
            states[remembers] = self._read(history.rows(remembers), begun[remembers])
        states[~remembers] = self._decode(begun[~remembers])
        return states

    def memory_of(self, history: History) -> tuple[Tensor, Tensor]:
        """What cross-attention reads: nuggets that know their age, and the bias of their scores (Eq. 5)."""
        # What is older than anything it learned from is as old as the oldest of that.
        ages = history.ages.clamp(max=min(self.config.history, AGES - 1))
        nuggets = history.vectors.to(self.dtype) + self.ages(ages)
        bias = residual_bias(
            history.scores,
            history.kept,
            self.nugget.config.residual,
            self.adapter.residual_scale,
            nuggets.dtype,
        )
        return nuggets * history.kept[:, :, None], bias

    def _read(self, history: History, begun: Tensor) -> Tensor:
        return self.adapter.decode(*self.memory_of(history), begun)

    def _decode(self, begun: Tensor, cache: Any = None) -> Tensor:
        return self.adapter.decode(None, None, begun, cache=cache)

    def compress(self, context: Tensor) -> DynamicCache:
        """The keys and values of past segments, each read on its own, every `pooled` of them as one.

        Keys and values are linear in the hidden states, so that this is mean pooling of these. No gradient goes back
        in time, as in compressive transformers.
        """
        rows, length = context.shape
        segments = context.reshape(rows * (length // self.config.segment), self.config.segment)
        # Behind the token every text begins with, which is not remembered.
        begun = torch.cat([self.begin(segments)[:, :1], segments], 1)
        with torch.no_grad():
            past = self.adapter.keys_and_values(begun)
        cache = DynamicCache()
        for layer, (keys, values) in enumerate(past):
            # (rows * segments, heads, s, d) -> (rows, heads, segments * s / pooled, d)
            pooled = [
                part[:, :, 1:]
                .unflatten(2, (-1, self.config.pooled))
                .mean(3)
                .unflatten(0, (rows, -1))
                .transpose(1, 2)
                .flatten(2, 3)
                for part in (keys, values)
            ]
            cache.update(*pooled, layer)
        return cache

    def open(self, text: str | Sequence[int] = "", history: int | None = None) -> Stream:
        """A text that grows and is remembered as it does.

        Args:
            text: What it begins with, as text or token ids.
            history: How many segments are remembered at most, so that memory stays the same however long
                the text gets; by default the model's history.
        """
        from textnuggets.lm.stream import Stream

        stream = Stream(self, self.config.history if history is None else history)
        stream.append(text)
        return stream

    def generate(
        self,
        text: str | Sequence[int],
        max_new_tokens: int = 200,
        history: int | None = None,
        **options: Any,
    ) -> str:
        """What comes next, greedily or as options say that transformers has: `do_sample`, `top_p`, `num_beams`, ...

        Args:
            text: Of any length, as text or token ids.
            max_new_tokens: How many tokens to write.
            history: How many segments are remembered at most; by default the model's history.
            options: As `Stream.generate` takes them.
        """
        return self.open(text, history).generate(max_new_tokens, **options)

    def evaluating(self) -> AbstractContextManager[None]:
        """Evaluation mode for as long as it lasts, then what it was before."""
        return self.nugget.evaluating()  # nothing else behaves otherwise in training


def is_language_model(name: str) -> bool:
    """Return whether a shipped name, folder or hub id is a language model."""
    place = locate(name)
    with explain_loading(place):
        found, _ = NuggetLMConfig.get_config_dict(place)
    return bool(found.get("model_type") == NuggetLMConfig.model_type)


def load_language_model(name: str | Path, device: str | None = None, **options: Any) -> NuggetLM:
    """Load a language model and put it where it runs best."""
    if "device_map" in options:
        raise ConfigError("a language model takes a device, not a device_map.")
    lm = NuggetLM.from_pretrained(name, **options)
    lm.to(best_device(device))  # type: ignore[arg-type]
    return lm


AutoConfig.register(NuggetLMConfig.model_type, NuggetLMConfig)
AutoModel.register(NuggetLMConfig, NuggetLM)
