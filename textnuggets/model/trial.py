"""Trial run of a loaded model, so that files that do not fit together are found when it is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from textnuggets.errors import CheckpointError
from textnuggets.model.backbone import BIAS_CARRIERS
from textnuggets.model.residual import residual_bias

if TYPE_CHECKING:
    from textnuggets.model.modeling import NuggetModel


def check_finite(model: PreTrainedModel, name: str) -> None:
    """Raise CheckpointError if a weight is NaN or infinite."""
    named = reversed(model.state_dict().items())
    tensors = {(value.data_ptr(), value.numel()): (key, value) for key, value in named}
    for key, value in tensors.values():  # tied weights once, by their first name
        # The extremes of a tensor with NaN are NaN; finding them is faster than comparing every value.
        has_values = value.is_floating_point() and value.numel() and not value.is_meta
        if has_values and not torch.stack(torch.aminmax(value.detach())).isfinite().all():
            raise CheckpointError(
                f"{name!r} has NaN or infinite weights in {key}: save or download it again."
            )


def check_vocabulary(tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel, name: str) -> None:
    """Raise CheckpointError if the tokenizer has pieces without an embedding."""
    tables: Any = model.get_input_embeddings()
    if (pieces := tokenizer.backend_tokenizer.get_vocab_size()) > (size := tables.num_embeddings):
        raise CheckpointError(
            f"{name!r}: its tokenizer has {pieces} pieces, but its weights have embeddings for {size}."
        )


def check_template(tokenizer: PreTrainedTokenizerFast, name: str) -> None:
    """Raise CheckpointError if the template of special tokens gives them ids without names, or the reverse."""
    encoding = tokenizer.backend_tokenizer.encode("a")
    if len(encoding.tokens) != len(encoding.ids):
        raise CheckpointError(
            f"{name!r}: the post-processor in its tokenizer.json adds {len(encoding.ids)} ids for "
            f"{len(encoding.tokens)} tokens: save or download the model again."
        )


def try_model(model: NuggetModel, name: str) -> None:
    """Encode one letter and, if there is a decoder, decode one token; raise an error if that is not possible.

    Most wrong values in the files of a model have no effect until it runs.
    """
    tokenizer = model.tokenizer
    check_vocabulary(tokenizer, model, name)
    check_template(tokenizer, name)
    if model.adapter.config._attn_implementation not in BIAS_CARRIERS:
        return  # flash attention, which does not run until the model is on its device
    ids = torch.tensor([tokenizer("a").input_ids], device=model.device)
    mask = torch.ones_like(ids, dtype=torch.bool)
    with model.evaluating(), torch.inference_mode():
        found = model.generate_nuggets(ids, mask, torch.ones(1, dtype=torch.long, device=ids.device), mask)
        if not model.can_decode:
            return
        kept, mode = found.selection.kept, model.config.residual
        bias = residual_bias(found.scores, kept, mode, model.adapter.residual_scale, found.nuggets.dtype)
        options = {"max_new_tokens": 1, "num_beams": 2, "do_sample": False}
        generated = model.adapter.generate(found.nuggets, bias, **options)
        tokenizer.batch_decode(generated)
