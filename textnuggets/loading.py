"""`textnuggets.load`: load a nugget model or a language model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from textnuggets.onnx.config import is_onnx
from textnuggets.onnx.load import Backend, check_backend, load_encoder
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
def load(
    name: str | Path, device: str | None = ..., backend: Backend | None = ..., **options: Any
) -> Any: ...
def load(
    name: str | Path | None = None,
    device: str | None = None,
    backend: Backend | None = None,
    **options: Any,
) -> Any:
    """Load a model in evaluation mode.

    Args:
        name: Shipped model (`search`, `reconstruct` or `lm`), folder or hub id; `search` by default.
        device: Torch device; the accelerator if there is one, else the CPU, by default.
        backend: `onnx` for a folder that `textnuggets export --onnx` wrote, `torch` for any other model; whichever fits by
            default. ONNX runs on the CPU, without torch.
        options: `base`, the folder or hub id of the base of a `CausalNuggetLM`; and arguments of transformers' `from_pretrained`, such as `dtype` or `attn_implementation`. On a CPU the
            default dtype is float32 whatever the stored dtype, because half precision is many times slower there.

    Returns:
        A `NuggetModel`, a `NuggetLM` or `CausalNuggetLM` for a language model, or an `OnnxModel`, which has the methods to
        encode texts.
    """
    # Before torch is imported, so that a wrong name fails at once.
    location = locate(DEFAULT if name is None else name)
    check_backend(location, backend)
    if is_onnx(location):
        return load_encoder(location, device, **options)

    from textnuggets.causal.modeling import is_causal_model, load_causal_model
    from textnuggets.lm.modeling import is_language_model, load_language_model
    from textnuggets.model.load import load_nugget_model

    if is_causal_model(location):
        return load_causal_model(location, device, **options)
    if is_language_model(location):
        return load_language_model(location, device, **options)
    return load_nugget_model(location, device, **options)
