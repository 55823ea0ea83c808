"""Finding saved models, and saying clearly what was found instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import AutoConfig, PreTrainedConfig

from textnuggets.config import NuggetConfig
from textnuggets.errors import CheckpointError

if TYPE_CHECKING:
    from textnuggets.model.modeling import NuggetModel

SHIPPED = Path(__file__).parent.parent / "models"  # the checkpoints that come with the package


def load(name: str | Path | None = None, device: str | None = None, **options: Any) -> NuggetModel:
    """A nugget model that is ready to use.

    Args:
        name: A folder or hub id; None is the model that comes with the package.
        device: Where it runs; a GPU if there is one, by default.
        options: For transformers' `from_pretrained`: `dtype`, `attn_implementation`, ...
    """
    import torch

    from textnuggets.model.modeling import NuggetModel

    if name is None:
        name = SHIPPED / "default"
        if not name.is_dir():
            raise CheckpointError(
                "no checkpoint comes with this version of textnuggets yet: give load() a folder or "
                "hub id of a nugget model, or start one with NuggetModel.from_backbone()."
            )
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    model = NuggetModel.from_pretrained(name, **options)
    model.to(device)  # type: ignore[arg-type]
    return model


def load_config(name: str) -> PreTrainedConfig:
    """The configuration of any transformers model, from a folder or a hub id."""
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot load {name!r}: {_first_line(error)}") from error
    return config


def check_checkpoint(name: str) -> None:
    """Whether `name` holds a nugget model, before transformers tries to fit other weights into one."""
    folder = Path(name)
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise CheckpointError(f"{name!r} holds no model: it has no config.json.")
    try:
        found, _ = PreTrainedConfig.get_config_dict(name)
    except (OSError, ValueError, json.JSONDecodeError) as error:
        raise CheckpointError(f"cannot load {name!r}: {_first_line(error)}") from error
    kind = found.get("model_type")
    if kind != NuggetConfig.model_type:
        raise CheckpointError(
            f"{name!r} is a {kind!r} model, not a nugget model. "
            f"To start one on it: NuggetModel.from_backbone({name!r})."
        )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
