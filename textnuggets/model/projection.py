"""The projection of a late-interaction checkpoint, such as a ColBERT model, which becomes W^V of a nugget model on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedConfig

from textnuggets.errors import BackboneError, CheckpointError
from textnuggets.model.checkpoint import check_names, explain_loading
from textnuggets.model.tokenization import fetch

WEIGHTS = "model.safetensors"


def read_projection(name: str, config: PreTrainedConfig, **hub: Any) -> Tensor | None:
    """Return the matrix `(dim, d)` that a checkpoint multiplies hidden states with; None if it is not a late-interaction model.

    Read are folders of sentence-transformers and PyLate, whose modules have no pooling, and of the Stanford ColBERT.

    Args:
        name: Folder or hub id.
        config: Configuration of the transformer in it.
        hub: Options that identify files.
    """
    with explain_loading(name):
        if "HF_ColBERT" in (config.architectures or []):
            return _read_weight(name, WEIGHTS, **hub)
        listed = fetch(name, "modules.json", **hub)
        modules = [] if listed is None else json.loads(listed.read_text(encoding="utf-8"))
        kinds = [module["type"].rsplit(".", 1)[-1] for module in modules]
        if "Pooling" in kinds:
            return None
        projection: Tensor | None = None
        for module, kind in zip(modules, kinds, strict=True):
            if kind == "Dense" and listed is not None:
                check_names(listed, [module["path"]])
                weight = _read_dense(name, module["path"], **hub)
                projection = weight if projection is None else weight @ projection
        return projection


def _read_dense(name: str, folder: str, **hub: Any) -> Tensor:
    path = fetch(name, f"{folder}/config.json", **hub)
    settings = {} if path is None else json.loads(path.read_text(encoding="utf-8"))
    activation = str(settings.get("activation_function"))
    if settings.get("bias", True) or settings.get("use_residual") or not activation.endswith("Identity"):
        raise BackboneError(
            f"{name}/{folder} is not a plain projection (bias, residual or activation): use add_nugget_head, which keeps it."
        )
    return _read_weight(name, f"{folder}/{WEIGHTS}", **hub)


def _read_weight(name: str, file: str, **hub: Any) -> Tensor:
    path: Path | None = fetch(name, file, **hub)
    if path is None:
        raise CheckpointError(f"{name!r} lacks {file}, the weights of its projection, as safetensors.")
    with safe_open(path, framework="pt") as weights:
        projection: Tensor = weights.get_tensor("linear.weight").float()
        return projection
