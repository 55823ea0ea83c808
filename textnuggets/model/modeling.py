"""NuggetModel: the complete model of the paper's section 3.

tokens -> lower layers -> scores -> positions -> feedback -> upper layers -> W^V -> nuggets
       -> residual bias -> decoder -> text
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel
from transformers import initialization as init

from textnuggets.checks import ResidualMode, check_count
from textnuggets.config import NuggetConfig
from textnuggets.errors import BackboneError, ConfigError, InputError
from textnuggets.model.backbone import BackboneAdapter, build_backbone
from textnuggets.model.budget import Budget, nugget_count
from textnuggets.model.families import backbone_window
from textnuggets.model.feedback import Feedback
from textnuggets.model.loss import SampledClasses, decoding_loss
from textnuggets.model.outputs import GeneratedNuggets, NuggetOutput
from textnuggets.model.pooling import Gather, mean_pool
from textnuggets.model.residual import residual_bias
from textnuggets.model.saving import SavedModel
from textnuggets.model.scoring import Scorer
from textnuggets.model.selection import Candidates, Selection, get_selector
from textnuggets.model.tokenization import has_probabilities, token_content
from textnuggets.model.torch_encoder import TorchEncoder


class NuggetModel(TorchEncoder, SavedModel):
    """Model that encodes text into nuggets and, if its backbone has a decoder, decodes them."""

    if TYPE_CHECKING:  # transformers reads annotations when the class is made
        config: NuggetConfig
    base_model_prefix = "nugget"
    main_input_name = "input_ids"
    content: Tensor
    """`(vocabulary,)` content of each token from `token_content`, if the selector needs it."""
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True  # `num_items_in_batch`, from transformers' Trainer
    _supports_sdpa = True
    _supports_flash_attn = True  # for encoders; `BackboneAdapter` rejects it for models with a decoder

    def __init__(self, config: NuggetConfig, backbone: nn.Module | None = None) -> None:
        super().__init__(config)
        if config.backbone is None:
            raise ConfigError("this NuggetConfig has no backbone: use NuggetModel.from_backbone.")
        if backbone is None:
            # sdpa is the default, which transformers replaces if the backbone does not support it.
            attention = config._attn_implementation
            backbone = build_backbone(
                config.backbone, attn_implementation=None if attention == "sdpa" else attention
            )
        self.backbone: Any = backbone
        self.adapter = BackboneAdapter(backbone)
        self.adapter.check_layer(config.scorer_layer, config.feedback)
        self.selector = get_selector(config.selector)
        self.scorer = Scorer(self.adapter.hidden_size) if self.selector.learned else None
        self.feedback = Feedback(self.adapter.hidden_size) if config.feedback else None
        self.gather = Gather(self.adapter.hidden_size, config.gather)
        size = self.adapter.hidden_size
        if config.dim is not None and (config.dim > size or self.can_decode):
            raise ConfigError(
                f"dim is {config.dim}, but the hidden size of the backbone is {size}"
                + (
                    " and its decoder reads nuggets of that size."
                    if self.can_decode
                    else ": choose at most that."
                )
            )
        self.value = nn.Linear(size, config.dim or size, bias=False)
        self.weighs_content = self.selector.needs_content or config.gather == "content"
        if self.weighs_content:
            size = self.backbone.get_input_embeddings().num_embeddings  # type: ignore[operator]
            self.register_buffer("content", torch.ones(size))
        self._tokenizer: Any = None
        self.post_init()
        self._freeze()

    @property
    def tokenizer(self) -> Any:
        """The backbone's tokenizer."""
        if self._tokenizer is None:
            raise ConfigError("this model has no tokenizer: pass one to NuggetModel.from_backbone.")
        return self._tokenizer

    def gradient_checkpointing_enable(  # type: ignore[override]
        self, gradient_checkpointing_kwargs: dict[str, Any] | None = None, **rest: Any
    ) -> None:
        """Enable gradient checkpointing, non-reentrant only: the reentrant form loses the gradient of the scores."""
        settings = gradient_checkpointing_kwargs or {}
        if settings.get("use_reentrant"):
            raise ConfigError(
                "reentrant checkpointing loses the gradient of the scores: set use_reentrant=False."
            )
        super().gradient_checkpointing_enable({**settings, "use_reentrant": False}, **rest)

    def get_input_embeddings(self) -> nn.Module:
        """Return the backbone's token embeddings."""
        return self.backbone.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the backbone's token embeddings."""
        self.backbone.set_input_embeddings(value)

    @property
    def pad_id(self) -> int:
        """Padding id, which attention masks out."""
        return int(self.adapter.config.pad_token_id or 0)

    @property
    def can_decode(self) -> bool:
        """Whether the backbone has a decoder."""
        return self.adapter.family.decodes

    @property
    def dim(self) -> int:
        """Number of dimensions of a nugget."""
        return self.value.out_features

    def truncate(self, dim: int) -> Self:
        """Keep only the first dimensions of every nugget, in place, and return the model.

        Meant for models trained with nested dimensions (`objective.dims` of a recipe), such as `search`.
        """
        if self.can_decode or check_count("dim", dim, at_least=1) > self.dim:
            raise ConfigError(
                f"nuggets of {self.dim} dimensions cannot be truncated to {dim}"
                + (": a model that decodes them needs all." if self.can_decode else ".")
            )
        self.config.dim = dim
        self.value.weight = nn.Parameter(self.value.weight.detach()[:dim].clone())
        self.value.out_features = dim
        return self

    @property
    def window(self) -> int:
        """Maximum number of tokens encoded at once, including special tokens."""
        return backbone_window(self.adapter.config, self.config.window)

    @property
    def decoder_window(self) -> int:
        """Maximum number of tokens decoded at once."""
        return backbone_window(self.adapter.config)

    def _init_weights(self, module: nn.Module) -> None:
        """Initialize the scorer with small random weights, W^V as the identity, feedback and attention with zeros.

        An untrained nugget is thus exactly a hidden state of the backbone, or a mean of them.
        """
        # Leaf modules only: transformers skips containers without parameters of their own.
        if module is self.value:
            init.eye_(self.value.weight)
        elif module is self.gather.attention:
            init.zeros_(module.weight)
        elif self.feedback is not None and module is self.feedback.types:
            init.zeros_(self.feedback.types.weight)
        elif self.scorer is not None and module in (self.scorer.hidden, self.scorer.out):
            init.normal_(module.weight, std=0.02)
            init.zeros_(module.bias)

    def _freeze(self) -> None:
        """Freeze the embeddings and the bottom l layers if the configuration freezes them (section 3.3)."""
        for table in self.adapter.fixed_tables():
            table.requires_grad_(False)
        if self.scorer is not None and self.config.residual == "off":
            self.scorer.requires_grad_(
                False
            )  # it gets no gradient, for which distributed training would wait
        if self.config.freeze:
            for module in self.adapter.below(self.config.scorer_layer):
                module.requires_grad_(False)

    def train(self, mode: bool = True) -> Self:
        """Set training mode, except in frozen layers: without dropout, the features of the scorer stay fixed."""
        super().train(mode)
        if mode and self.config.freeze:
            self.adapter.set_training_above(self.config.scorer_layer, mode)
        return self

    # ---------------------------------------------------------------- section 3, on tensors

    def generate_nuggets(
        self,
        input_ids: Tensor,
        mask: Tensor,
        count: Tensor,
        sentence_ends: Tensor | None = None,
    ) -> GeneratedNuggets:
        """Compute Nugget(X): score at layer l, select, add feedback, gather from the last layer (Eqs. 2-4, 7-8).

        Args:
            input_ids: `(batch, n)`.
            mask: `(batch, n)` True on real tokens.
            count: `(batch,)` k of each text.
            sentence_ends: `(batch, n)` True on the last token of each sentence, for `sentence_boundary`.
        """
        if self.selector.needs_sentence_ends and sentence_ends is None:
            raise InputError(
                f"the selector {self.selector.name!r} needs sentence_ends, which cannot be derived from tokens."
            )
        selected: list[tuple[Tensor, Selection]] = []

        def score_and_select(hidden_states: Tensor) -> Tensor:
            if self.scorer is None:  # a rule selects; nothing is added to cross-attention
                scores = torch.zeros_like(mask, dtype=torch.float32)
            else:
                scores = self.scorer(hidden_states)
            selection = self.selector(
                Candidates(
                    scores=scores.detach(),
                    mask=mask,
                    count=count,
                    punctuation=self._punctuation(input_ids),
                    sentence_ends=torch.zeros_like(mask) if sentence_ends is None else sentence_ends,
                    content=self._content(input_ids),
                )
            )
            selected.append((scores, selection))
            if self.feedback is None:
                return hidden_states
            return self.feedback(hidden_states, selection.marks(mask.shape[1]))

        hidden_states = self.adapter.encode(input_ids, mask, self.config.scorer_layer, score_and_select)
        ((scores, selection),) = selected
        if self.selector.pools:
            gathered = mean_pool(hidden_states, mask)
        else:
            gathered = self.gather(hidden_states, selection, mask, self._content(input_ids))
        nuggets = self.value(gathered.to(self.value.weight.dtype))  # Z = X' W^V (Eq. 4)
        return GeneratedNuggets(nuggets, scores.gather(1, selection.positions), selection, scores)

    def measure_content(self) -> None:
        """Set the content of each token from the tokenizer, if the model uses it.

        Only Unigram tokenizers have probabilities. With others and the gather mode `content`, all tokens weigh the same
        until `content` is set.
        """
        if self.selector.needs_content or (self.weighs_content and has_probabilities(self.tokenizer)):
            self.content.copy_(token_content(self.tokenizer, len(self.content)))

    def _content(self, input_ids: Tensor) -> Tensor:
        if not self.weighs_content:
            return torch.ones_like(input_ids, dtype=torch.float32)
        return self.content[input_ids]

    def _punctuation(self, input_ids: Tensor) -> Tensor:
        ids = torch.tensor(self.config.punctuation_ids, dtype=input_ids.dtype, device=input_ids.device)
        return torch.isin(input_ids, ids)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        sentence_ends: Tensor | None = None,
        ratio: float | None = None,
        max_vectors: int | None = None,
        residual: ResidualMode | None = None,
        decoder_input_ids: Tensor | None = None,
        classes: SampledClasses | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> NuggetOutput:
        """Compute the nuggets of a batch and, given labels, the loss of decoding them (section 3.4).

        Args:
            input_ids: `(batch, n)`.
            attention_mask: `(batch, n)` 1 on real tokens; all ones by default.
            labels: `(batch, targets)` token ids of the text to decode; -100 is ignored.
            sentence_ends: `(batch, n)` True on the last token of each sentence, for `sentence_boundary`.
            ratio: Compression ratio; the configuration's by default.
            max_vectors: Maximum number of nuggets per text, instead of a ratio.
            residual: Residual mode, such as `off` to ablate s; the configuration's by default.
            decoder_input_ids: `(batch, targets)` decoder inputs; the labels shifted right by default.
            classes: Subset of the vocabulary for a sampled softmax.
            num_items_in_batch: Divisor of the summed loss; the number of targets by default.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        mask = mask.bool()
        budget = Budget.of(ratio, max_vectors, self.config.ratio)
        count = nugget_count(mask.sum(-1), budget.ratio)
        if budget.max_vectors is not None:
            count = count.clamp(max=budget.max_vectors)
        generated = self.generate_nuggets(input_ids, mask, count, sentence_ends)
        output = NuggetOutput(
            nuggets=generated.nuggets,
            positions=generated.selection.positions,
            kept=generated.selection.kept,
            token_scores=generated.token_scores,
        )
        if labels is not None:
            if not self.can_decode:
                raise BackboneError(
                    f"a {self.adapter.config.model_type} backbone has no decoder: call the model without labels."
                )
            bias = residual_bias(
                generated.scores,
                generated.selection.kept,
                residual or self.config.residual,
                self.adapter.residual_scale,
                generated.nuggets.dtype,
            )
            if decoder_input_ids is None:
                decoder_input_ids = self.adapter.shift(labels)
            states = self.adapter.decode(generated.nuggets, bias, decoder_input_ids)
            output.logits = self.adapter.project(states, None if classes is None else classes.ids)
            output.loss = decoding_loss(output.logits, labels, classes, num_items_in_batch)
        return output


AutoConfig.register(NuggetConfig.model_type, NuggetConfig)
AutoModel.register(NuggetConfig, NuggetModel)
