"""`as_sentence_transformer`: a nugget model as a sentence-transformers `MultiVectorEncoder`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textnuggets.errors import TextnuggetsWarning

if TYPE_CHECKING:
    from textnuggets.model.modeling import NuggetModel


def as_sentence_transformer(
    model: NuggetModel | str | Path | None = None, device: str | None = None, **options: Any
) -> Any:
    """Return a nugget model as a `MultiVectorEncoder` of sentence-transformers.

    Its vectors are those of `NuggetModel.encode_query` and `encode_document`, at length 1, in the same order.

    Args:
        model: Shipped model, folder or hub id, or a model, whose weights are shared; `search` by default.
        device: Torch device; the accelerator if there is one, else the CPU, by default.
        options: Arguments of transformers' `from_pretrained`, such as `dtype`.
    """
    from textnuggets.integrations.nugget_module import MultiVectorEncoder, NuggetModule
    from textnuggets.model.load import load_nugget_model
    from textnuggets.model.maxsim import NOT_COMPARABLE
    from textnuggets.model.modeling import NuggetModel

    if not isinstance(model, NuggetModel):
        model = load_nugget_model(model, device, **options)
    if not model.config.comparable:
        warnings.warn(NOT_COMPARABLE, TextnuggetsWarning, stacklevel=2)
    return MultiVectorEncoder(
        modules=[NuggetModule(model)], device=device or str(model.device), similarity_fn_name="meanmaxsim"
    )
