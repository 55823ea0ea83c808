"""`textnuggets.load`: any saved model, of the kind it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from textnuggets.shipped import DEFAULT, locate

if TYPE_CHECKING:
    from textnuggets.lm.modeling import NuggetLM
    from textnuggets.model.modeling import NuggetModel


@overload
def load(
    name: Literal["search", "reconstruct"] | None = ..., device: str | None = ..., **options: Any
) -> NuggetModel: ...
@overload
def load(name: Literal["lm"], device: str | None = ..., **options: Any) -> NuggetLM: ...
@overload
def load(name: str | Path, device: str | None = ..., **options: Any) -> Any: ...
def load(name: str | Path | None = None, device: str | None = None, **options: Any) -> Any:
    """Load a model that is ready to use.

    Args:
        name: A shipped model (`search`, which is the default, `reconstruct` or `lm`), a folder, or a hub id.
        device: Where it runs; a GPU if there is one, by default.
        options: For transformers' `from_pretrained`: `dtype`, `attn_implementation`, ... On a CPU the dtype is
            float32 by default, whatever the weights are stored as: CPUs are many times slower in half precision.

    Returns:
        A `NuggetModel`, or a `NuggetLM` where the folder holds a language model.
    """
    place = locate(
        DEFAULT if name is None else name
    )  # before torch is imported: a wrong name is said at once

    from textnuggets.lm.modeling import is_language_model, load_language_model
    from textnuggets.model.load import load_nugget_model

    if is_language_model(place):
        return load_language_model(place, device, **options)
    return load_nugget_model(place, device, **options)
