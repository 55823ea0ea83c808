"""Checks of saved models, and clear errors for those that cannot be loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, PreTrainedConfig

from textnuggets.config import NuggetConfig
from textnuggets.errors import CheckpointError, TextnuggetsError

HUB_OPTIONS = ("revision", "token", "cache_dir", "local_files_only", "force_download", "subfolder")


def best_device(device: str | None = None) -> torch.device:
    """Return the given device; without one, the accelerator if there is one, else the CPU."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return torch.device(device) if device else accelerator or torch.device("cpu")


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Hide transformers' progress bars and log messages while a model loads."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def load_config(name: str, **hub: Any) -> PreTrainedConfig:
    """Load the configuration of any transformers model from a folder or a hub id."""
    with explain_loading(name):
        config: PreTrainedConfig = AutoConfig.from_pretrained(name, trust_remote_code=False, **hub)
    return config


def check_checkpoint(name: str, **hub: Any) -> None:
    """Raise CheckpointError if `name` is not a nugget model, before transformers tries to load its weights."""
    folder = Path(name)
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise CheckpointError(f"{name!r} contains no model: it has no config.json.")
    with explain_loading(name):
        settings, _ = PreTrainedConfig.get_config_dict(name, **hub)
    kind = settings.get("model_type")
    if kind == "nugget_lm":
        raise CheckpointError(f"{name!r} is a language model: load it with textnuggets.load or NuggetLM.")
    if kind != NuggetConfig.model_type:
        raise CheckpointError(
            f"{name!r} is a {kind!r} model, not a nugget model. "
            f"To build a nugget model on it, use NuggetModel.from_backbone({name!r})."
        )


def hub_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `from_pretrained` that identify files, to be passed to every download."""
    return {key: options[key] for key in HUB_OPTIONS if key in options}


def check_complete(name: str, missing: Iterable[str]) -> None:
    """Raise CheckpointError if weights are missing, which transformers would initialize at random."""
    if absent := sorted(missing):
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        raise CheckpointError(
            f"{name!r} lacks the weights {', '.join(absent[:3])}{more}: save or download it again."
        )


@contextmanager
def explain_loading(name: str) -> Iterator[None]:
    """Raise errors of reading files or downloading from the Hub as CheckpointError."""
    try:
        yield
    except TextnuggetsError:
        raise
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).strip().split("\n")[0]
        # A hub id has at most one slash and no leading dot: anything else must be a folder.
        if not Path(name).exists() and (name.count("/") > 1 or name.startswith((".", "/", "~"))):
            reason = "no such folder."
        elif "trust_remote_code" in str(error):
            reason = "it refers to its own Python code, which is never run."
        raise CheckpointError(f"cannot load {name!r}: {reason}") from error
