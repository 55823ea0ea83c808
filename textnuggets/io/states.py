"""Metadata of saved streams, stored in safetensors files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from textnuggets.errors import InputError

KEY = "textnuggets"  # of the metadata that holds ours


def to_metadata(about: Mapping[str, Any]) -> dict[str, str]:
    """Return metadata for `save_file`."""
    return {KEY: json.dumps(about)}


def read_metadata(file: Any, path: str | Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of an open file; raise InputError if it was written with other settings of the model.

    Args:
        file: Result of `safe_open`.
        path: Path of the file, for error messages.
        settings: Settings of the model that reads it.
    """
    about: dict[str, Any] = json.loads((file.metadata() or {})[KEY])
    for key, value in settings.items():
        if about[key] != value:
            raise InputError(
                f"{path} was written by a model with different {key}: {about[key]}, not {value}."
            )
    return about
