"""NuggetReader: weights and tensor-level methods of a decoder-only language model with nuggets in its cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from textnuggets.causal.cache import NuggetCache
from textnuggets.causal.config import CausalConfig
from textnuggets.causal.families import check_base, layers_of, part_of, sliding_window
from textnuggets.causal.lora import add_lora, without_lora
from textnuggets.causal.masks import Masks, document_masks, gathering_masks
from textnuggets.errors import ConfigError, InputError
from textnuggets.io.hashing import digest_bytes
from textnuggets.model.budget import nugget_count
from textnuggets.model.feedback import Feedback
from textnuggets.model.scoring import Scorer
from textnuggets.model.selection import Candidates, get_selector

TOKEN, NUGGET = 0, 1  # types


class NuggetReader(PreTrainedModel):
    """The weights and tensor-level methods; `CausalNuggetLM` adds loading, saving and text.

    The base model gets LoRA weights and two hooks: from then on it reads a `NuggetCache` given as `past_key_values`,
    also in its own `generate`.
    """

    config: CausalConfig
    config_class = CausalConfig
    base_model_prefix = "base"
    main_input_name = "input_ids"
    _supports_sdpa = True

    def __init__(self, config: CausalConfig, base: PreTrainedModel) -> None:
        check_base(base)
        depth, layer = len(layers_of(base)), config.scorer_layer
        if layer >= depth:
            raise ConfigError(
                f"scorer_layer is {layer}, but the base has {depth} layers: use 1 to {depth - 1}."
            )
        super().__init__(config)
        width = base.config.hidden_size
        self.selector = get_selector(config.selector)
        self.scorer = Scorer(width)
        self.feedback = Feedback(width)
        # Without training, nuggets are the keys and values of the base.
        for table in (self.scorer.out.weight, self.scorer.out.bias, self.feedback.types.weight):
            nn.init.zeros_(table)
        self.base = base.requires_grad_(False).eval()
        if config.rank:
            add_lora(base, layer, config.rank)
        for value in base.parameters():
            if value.requires_grad:  # trained in full precision whatever that of the base
                value.data = value.data.float()
        self.depth = depth
        self.window = sliding_window(base)
        self.lower, self.upper = ([part_of(base, 0, layer)], [part_of(base, layer, depth)])  # not submodules
        self._types: Tensor | int | None = TOKEN
        layers_of(base)[layer].register_forward_pre_hook(self._mark, with_kwargs=True)
        base.register_forward_pre_hook(self._admit, with_kwargs=True)
        self.frozen = {name for name, value in self.named_parameters() if not value.requires_grad}
        """Names of the weights of the base."""
        self.post_init()

    def init_weights(self) -> None:
        """Leave the weights as they are; transformers would draw those of the base anew."""

    @property
    def dtype(self) -> torch.dtype:
        """Type of the hidden states."""
        return self.base.dtype

    @property
    def device(self) -> torch.device:
        """Device of the base."""
        return self.base.device

    def train(self, mode: bool = True) -> Any:
        """Set the mode, except of the base, whose dropout stays off."""
        super().train(mode)
        self.base.eval()
        return self

    def adapter_weights(self) -> dict[str, nn.Parameter]:
        """Return the weights that are trained and saved, by name."""
        return {name: value for name, value in self.named_parameters() if name not in self.frozen}

    def weights_digest(self) -> str:
        """Return a hash of the weights of the adapter."""
        parts = (value.detach().cpu().contiguous().numpy().data for value in self.adapter_weights().values())
        return digest_bytes(*parts)

    # ---------------------------------------------------------------- nuggets

    def pick(self, hidden: Tensor, ratio: float, is_first: bool) -> tuple[Tensor, Tensor]:
        """Return positions in a segment and scores of its nuggets, both `(batch, k)` (Eqs. 2 and 3).

        The first token of a text is never among them: it is kept anyway.

        Args:
            hidden: `(batch, s, d)` hidden states of layer l.
            ratio: Compression ratio.
            is_first: Whether it is the first segment of a text.
        """
        skipped = int(is_first)
        # Autocast would keep a copy of the weights without gradients.
        with torch.no_grad(), torch.autocast(hidden.device.type, enabled=False):
            scores = self.scorer(hidden)[:, skipped:]
        mask = torch.ones_like(scores, dtype=torch.bool)
        k = min(nugget_count(hidden.shape[1], ratio), scores.shape[1])
        count = torch.full((len(scores),), k, device=scores.device)
        candidates = Candidates(scores, mask, count, ~mask, ~mask, mask.float())
        inside = self.selector(candidates).positions + skipped
        return inside, self.score(hidden, inside)

    def score(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """Return the scores of picked tokens, with gradients; zeros if the selector has no scores."""
        if not self.selector.learned:
            return torch.zeros(positions.shape, device=hidden.device)
        return self.scorer(hidden.detach().take_along_dim(positions[:, :, None], 1))

    def gather(self, cache: NuggetCache, hidden: Tensor, positions: Tensor) -> None:
        """Read picked tokens again in the layers from l on, marked as nuggets, so that they take up their segment."""
        assert cache.positions is not None
        assert cache.bias is not None
        masks = gathering_masks(cache.positions, cache.bias, positions, self.window, self.dtype)
        with self._marking(NUGGET):
            self._run(self.upper, cache, masks, positions, inputs_embeds=hidden)

    @contextmanager
    def _marking(self, types: Tensor | int | None) -> Iterator[None]:
        """Add the embeddings of these types at layer l within the block; None adds nothing, also in inner blocks."""
        before = self._types
        self._types = None if before is None else types
        try:
            yield
        finally:
            self._types = before

    def _mark(self, _: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Keep the input of layer l for the scorer, and add type embeddings to it (Eq. 8)."""
        hidden = args[0]
        cache = next((value for value in options.values() if isinstance(value, NuggetCache)), None)
        if cache is not None and not cache.is_reading_again:
            cache.hidden.append(hidden)
        if self._types is None:
            return None
        types = torch.as_tensor(self._types, device=hidden.device).expand(hidden.shape[:2])
        return (self.feedback(hidden, types).to(hidden.dtype), *args[1:]), options

    def _admit(self, base: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Prepare a call of the base with a `NuggetCache`: read all segments but the last, and make the masks of that.

        The logits are those of the tokens of the last segment.
        """
        cache = options.get("past_key_values")
        if not isinstance(cache, NuggetCache):
            return None
        ids = args[0] if args else options.get("input_ids")
        if ids is None:
            raise InputError("a NuggetCache reads input_ids, not inputs_embeds.")
        padding = options.get("attention_mask")
        if padding is not None and not padding.bool().all():
            raise InputError(
                "a NuggetCache reads texts of equal length: give texts of other lengths one by one."
            )
        while True:
            if not cache.room:
                cache.turn()
            if ids.shape[1] <= cache.room:
                break
            part, ids = ids[:, : cache.room], ids[:, cache.room :]
            base(input_ids=part, past_key_values=cache, use_cache=True, logits_to_keep=1)
        positions, masks = cache.admit(ids)
        changed = {"input_ids": ids, "position_ids": positions, "attention_mask": masks, "use_cache": True}
        return (), {**options, **changed}

    # ---------------------------------------------------------------- documents

    def forward(self, input_ids: Tensor, ratio: float | None = None, by_segments: bool = False) -> Tensor:
        """Return the `(batch, n, d)` states after the last layer, from which the next tokens are predicted.

        The layers below l read one segment after the other, and those from l on the whole documents in one pass.

        Args:
            input_ids: `(batch, n)` documents of equal length.
            ratio: Compression ratio; the model's by default.
            by_segments: Whether all layers read one segment after the other. The result is the same; attention is
                smaller, which is faster on a CPU.
        """
        if by_segments:
            return self.read(input_ids, NuggetCache(self, ratio))
        size, length = self.config.segment, input_ids.shape[1]
        cache = NuggetCache(self, ratio, self.config.scorer_layer)
        hidden = torch.cat([self._read_lower(cache, part) for part in input_ids.split(size, 1)], 1)
        # No token reads the nuggets of the last two segments.
        picked = [positions for positions, _ in cache.picked[: max(0, -(-length // size) - 2)]]
        positions = torch.cat([input_ids.new_zeros(len(hidden), 0), *picked], 1)
        scores = self.score(hidden, positions)
        tokens = torch.arange(length, device=hidden.device).expand(len(hidden), length)
        types = torch.cat([torch.full_like(tokens, TOKEN), torch.full_like(positions, NUGGET)], 1)
        rows = torch.cat([hidden, hidden.take_along_dim(positions[:, :, None], 1)], 1)
        masks = document_masks(length, size, positions, scores, self.window, self.dtype)
        places = torch.cat([tokens, positions], 1)
        with self._marking(types):
            return self._run(self.upper, None, masks, places, inputs_embeds=rows)[:, :length]

    def read(self, input_ids: Tensor, cache: NuggetCache) -> Tensor:
        """Return the states of `forward` for tokens that follow those in a cache, which grows by them.

        Args:
            input_ids: `(batch, n)` tokens.
            cache: Cache of what was read before.
        """
        found = []
        while input_ids.shape[1]:
            if not cache.room:
                cache.turn()
            part, input_ids = input_ids[:, : cache.room], input_ids[:, cache.room :]
            positions, masks = cache.admit(part)
            with torch.no_grad():  # nothing below l is trained
                hidden = self._run(self.lower, cache, masks, positions, input_ids=part)
            found.append(self._run(self.upper, cache, masks, positions, inputs_embeds=hidden))
        return torch.cat(found, 1)

    @torch.no_grad()
    def _read_lower(self, cache: NuggetCache, part: Tensor) -> Tensor:
        """Return the hidden states of layer l of the next segment."""
        if not cache.room:
            cache.turn()
        positions, masks = cache.admit(part)
        hidden = self._run(self.lower, cache, masks, positions, input_ids=part)
        cache.hidden.append(hidden)
        return hidden

    def _run(
        self, part: list[Any], cache: NuggetCache | None, masks: Masks, positions: Tensor, **inputs: Tensor
    ) -> Tensor:
        options = {"past_key_values": cache, "use_cache": cache is not None}
        output = part[0](**inputs, attention_mask=masks, position_ids=positions, **options)
        states: Tensor = output.last_hidden_state
        return states

    def project(self, states: Tensor) -> Tensor:
        """Return the logits of the next tokens."""
        logits: Tensor = self.base.get_output_embeddings()(
            states.to(self.dtype)
        )  # float32 in mixed precision
        cap = getattr(self.base.config, "final_logit_softcapping", None)
        return logits if cap is None else torch.tanh(logits / cap) * cap

    @contextmanager
    def bare(self) -> Iterator[None]:
        """Run the base as it was before nuggets within the block: without LoRA weights and types."""
        with without_lora(self.base), self._marking(None):
            yield

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Switch to evaluation mode within the block."""
        training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(training)
