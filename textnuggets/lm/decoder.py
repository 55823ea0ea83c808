"""SegmentDecoder: predict a segment from its own tokens and a memory of the segments before it.

    p(y_i | y_<i of the segment, Nugget(segment - h), ..., Nugget(segment - 1))

The decoder reads its segment by self-attention and the nuggets of past segments by cross-attention. Every segment is
encoded on its own. Without history the decoder runs without cross-attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers import initialization as init

from textnuggets.checks import check_ratio
from textnuggets.errors import BackboneError, ConfigError
from textnuggets.lm.config import NuggetLMConfig
from textnuggets.lm.memory import History, SegmentMemory
from textnuggets.model.budget import nugget_count
from textnuggets.model.loss import SampledClasses, decoding_loss
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.outputs import NuggetOutput
from textnuggets.model.padding import pad
from textnuggets.model.residual import residual_bias
from textnuggets.model.tokenization import special_frame

AGES = 64  # number of age embeddings; older segments use the last one
BATCH = 32  # segments encoded together


class SegmentDecoder(PreTrainedModel):
    """The weights and tensor-level methods of a language model; `NuggetLM` adds loading, saving and text."""

    config: NuggetLMConfig
    config_class = NuggetLMConfig
    base_model_prefix = "lm"
    main_input_name = "input_ids"
    accepts_loss_kwargs = True
    _supports_sdpa = True

    def __init__(self, config: NuggetLMConfig, nugget: NuggetModel | None = None) -> None:
        super().__init__(config)
        if config.nugget is None:
            raise ConfigError(
                "this NuggetLMConfig has no nugget model: create language models with NuggetLM.from_nuggets."
            )
        self.nugget = NuggetModel(config.nugget) if nugget is None else nugget
        if not self.nugget.can_decode:
            raise BackboneError(
                f"a {self.nugget.adapter.config.model_type} backbone has no decoder, which a language model needs."
            )
        if config.memory == "nuggets" and self.nugget.selector.needs_sentence_ends:
            raise ConfigError(
                "the selector 'sentence_boundary' cannot be used: segments have no sentence boundaries."
            )
        # Cross-attention has no positions, so the age of a nugget's segment is added to it. Starts at zero.
        self.ages = nn.Embedding(AGES, self.nugget.adapter.hidden_size)
        self.post_init()

    def check_room(self, history: int) -> None:
        """Raise ConfigError if self-attention would read more positions than the decoder has."""
        needed = self.config.segment
        if self.config.memory == "tokens":
            needed *= 1 + history
        elif self.config.memory == "compressive" and history:
            needed += 1  # past segments are read after the start token
        if needed > (room := self.nugget.decoder_window):
            raise ConfigError(
                f"segment={self.config.segment}, memory={self.config.memory} and history={history} "
                f"need {needed} positions, but the decoder has {room}."
            )

    def _init_weights(self, module: nn.Module) -> None:
        if module is getattr(self, "ages", None):
            init.zeros_(module.weight)

    @property
    def tokenizer(self) -> Any:
        """Tokenizer of the nugget model."""
        return self.nugget.tokenizer

    @property
    def adapter(self) -> Any:
        """Backbone adapter of the nugget model."""
        return self.nugget.adapter

    @property
    def pad_id(self) -> int:
        """Token id of padding."""
        return self.nugget.pad_id

    def get_input_embeddings(self) -> nn.Module:
        """Return the token embeddings of the backbone."""
        return self.nugget.get_input_embeddings()

    # ---------------------------------------------------------------- the past

    def remember(self, segments: Sequence[Sequence[int]], ratio: float | None = None) -> list[SegmentMemory]:
        """Return the nuggets of finished segments, each encoded on its own with the special tokens of a text.

        Args:
            segments: Token ids of each segment, without special tokens.
            ratio: Compression ratio; the nugget model's by default.
        """
        ratio = self.config.nugget.ratio if ratio is None else check_ratio(ratio)  # type: ignore[union-attr]
        before, after = special_frame(self.tokenizer)
        memories: list[SegmentMemory] = []
        for start in range(0, len(segments), BATCH):
            closed = [[*before, *ids, *after] for ids in segments[start : start + BATCH]]
            ids, mask = (part.to(self.device) for part in pad(closed, self.pad_id))
            output = self.nugget.generate_nuggets(ids, mask, nugget_count(mask.sum(-1), ratio))
            for row, kept in enumerate(output.selection.kept.sum(-1).tolist()):
                memories.append(SegmentMemory(output.nuggets[row, :kept], output.scores[row, :kept]))
        return memories

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
            input_ids: `(batch, n)` segments; mask padding in `labels`.
            history: Nuggets of past segments, if they are encoded already.
            context: `(batch, m)` tokens of past segments, the same number for every row; instead of `history`.
            ratio: Compression ratio of `context`; the nugget model's by default.
            labels: `(batch, n)` the same tokens; -100 is ignored.
            classes: Sampled part of the vocabulary, for a sampled softmax.
            num_items_in_batch: Divisor of the summed loss; the number of targets by default.
            logits_to_keep: Predict only this number of last tokens, which is faster with a large vocabulary;
                0 predicts all.

        Returns:
            `logits` `(batch, n, vocabulary)`, where position i predicts token i, and `loss`.
        """
        decoder_ids = self.begin(input_ids)
        if context is not None and context.shape[1] and self.config.memory == "tokens":
            joined = self.begin(torch.cat([context, input_ids], dim=1))
            states = self._decode(joined)[:, context.shape[1] :]
        elif context is not None and context.shape[1] and self.config.memory == "compressive":
            cache = self.compress(context)
            states = self.adapter.decode(None, None, decoder_ids, cache, cache.get_seq_length())
        elif context is not None and context.shape[1]:
            past = [row.split(self.config.segment) for row in context]
            memories = iter(self.remember([part.tolist() for row in past for part in row], ratio))
            batch = History.of([[next(memories) for _ in row] for row in past])
            states = self._decode_with(batch, decoder_ids)  # type: ignore[arg-type]
        elif history is None:
            states = self._decode(decoder_ids)
        else:
            states = self._decode_with(history, decoder_ids)
        if logits_to_keep:
            states = states[:, -logits_to_keep:]
            labels = None if labels is None else labels[:, -logits_to_keep:]
        logits = self.adapter.project(states, None if classes is None else classes.ids)
        loss = None if labels is None else decoding_loss(logits, labels, classes, num_items_in_batch)
        return NuggetOutput(loss=loss, logits=logits)

    def begin(self, ids: Tensor) -> Tensor:
        """Return the decoder input that predicts `ids`: the start token, then all tokens except the last."""
        start = torch.full_like(ids[:, :1], self.adapter.start_token)
        return torch.cat([start, ids[:, :-1]], dim=1)

    def _decode_with(self, history: History, decoder_ids: Tensor) -> Tensor:
        """Decode rows with a past by cross-attention, and rows without one without it."""
        remembers = history.kept.any(1)
        if bool(remembers.all()):
            return self._read(history, decoder_ids)
        states = torch.empty(
            *decoder_ids.shape, self.adapter.hidden_size, device=decoder_ids.device, dtype=self.dtype
        )
        if bool(remembers.any()):
            states[remembers] = self._read(history.rows(remembers), decoder_ids[remembers])
        states[~remembers] = self._decode(decoder_ids[~remembers])
        return states

    def memory_of(self, history: History) -> tuple[Tensor, Tensor]:
        """Return the input of cross-attention: nuggets with age embeddings, and the bias from their scores (Eq. 5)."""
        # Ages that do not occur in training use the largest one that does.
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

    def _read(self, history: History, decoder_ids: Tensor) -> Tensor:
        return self.adapter.decode(*self.memory_of(history), decoder_ids)

    def _decode(self, decoder_ids: Tensor) -> Tensor:
        return self.adapter.decode(None, None, decoder_ids)

    def compress(self, context: Tensor) -> DynamicCache:
        """Return the keys and values of past segments, each read on its own, with the mean of every `pooled` positions.

        Keys and values are linear in the hidden states, so this equals mean pooling of the hidden states. They have the
        positions of their own segment, and the segment that reads them starts at position 0, as in training without
        history. Gradients flow into the past.
        """
        rows, length = context.shape
        segments = context.reshape(rows * (length // self.config.segment), self.config.segment)
        # Segments are read after the start token, whose own keys and values are dropped below.
        decoder_ids = torch.cat([self.begin(segments)[:, :1], segments], 1)
        past = self.adapter.keys_and_values(decoder_ids)
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

    def evaluating(self) -> AbstractContextManager[None]:
        """Return a context manager that sets evaluation mode and restores the previous mode."""
        return self.nugget.evaluating()  # no other module depends on the mode
