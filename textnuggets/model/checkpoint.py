"""Checks of saved models, and clear errors for those that cannot be loaded."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, PreTrainedConfig

from textnuggets.config import NuggetConfig
from textnuggets.errors import CheckpointError, MissingExtraError, TextnuggetsError

LONGEST = 300  # characters of an error of another library that are shown
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
    if (folder / "onnx.json").is_file():
        raise CheckpointError(
            f"{name!r} is an ONNX model, which only encodes: give the model that it was exported from."
        )
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise CheckpointError(f"{name!r} contains no model: it has no config.json.")
    with explain_loading(name):
        settings, _ = PreTrainedConfig.get_config_dict(name, **hub)
        kind = settings.get("model_type")
    if kind in ("nugget_lm", "nugget_causal_lm"):
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


def check_names(index: Path, files: Iterable[Any]) -> None:
    """Raise CheckpointError if an index of weights names anything but files beside it."""
    for file in files:
        if not isinstance(file, str) or file in ("", ".", "..") or set(file) & set("/\\:\0"):
            raise CheckpointError(
                f"{index} names the file {file!r}: it must be a plain name of a file beside it."
            )


def check_shards(name: str, subfolder: str = "") -> None:
    """Raise CheckpointError if the weights of a folder are not all inside it; files of the Hub always are."""
    index = Path(name) / subfolder / "model.safetensors.index.json"
    if index.is_file():
        try:
            files = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"{index} is damaged: save or download the model again.") from error
        check_names(index, files)


@contextmanager
def explain_saved(name: str) -> Iterator[None]:
    """Raise all errors of loading a saved model as CheckpointError, since its own files are the cause."""
    try:
        with explain_loading(name):
            yield
    except (CheckpointError, MissingExtraError):
        raise
    except TextnuggetsError as error:
        raise CheckpointError(f"cannot load {name!r}: {error}") from error


@contextmanager
def explain_loading(name: str) -> Iterator[None]:
    """Raise errors of reading files or downloading from the Hub as CheckpointError.

    Any exception: damaged files raise almost all types in transformers, tokenizers and PyTorch.
    """
    try:
        yield
    except TextnuggetsError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())
        is_explained = isinstance(error, OSError | ValueError | SafetensorError)
        if not is_explained or isinstance(error, json.JSONDecodeError):
            reason = f"its files are damaged or do not fit together ({type(error).__name__}: {reason})"
        reason = reason if len(reason) <= LONGEST else f"{reason[:LONGEST]} ..."
        # A hub id has at most one slash and no leading dot: anything else must be a folder.
        if not Path(name).exists() and (name.count("/") > 1 or name.startswith((".", "/", "~"))):
            reason = "no such folder."
        elif "trust_remote_code" in str(error):
            reason = "it refers to its own Python code, which is never run."
        elif "ignore_mismatched_sizes" in str(error):
            reason = "its weights have other shapes than its config.json describes."
        raise CheckpointError(f"cannot load {name!r}: {reason}") from error
