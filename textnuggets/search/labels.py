"""Labels, by which searches filter: metadata as strings, in the form of the option `--filter`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def labels_of(metadata: Mapping[str, Any]) -> list[str]:
    """Return `key=value` for each value that is not an object, and for each item of a list.

    Values are written as text, so that '1999' matches 1999 and engines only need to compare strings. A key that
    is empty, contains `=` or starts with `"` is written as a JSON string, so that no two pairs have the same label.
    """
    labels: list[str] = []
    for key, value in metadata.items():
        for item in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(item, dict | list | tuple):
                labels.append(f"{_quoted(key)}={_to_text(item)}")
    return labels


def split_label(label: str) -> tuple[str, str]:
    """Return key and value of a label; raise ValueError if it is not one."""
    if label.startswith('"'):
        key, end = json.JSONDecoder().raw_decode(label)
    else:
        end = label.find("=")
        key = label[:end]
    if label[end : end + 1] != "=" or end == 0:
        raise ValueError("no key=value")
    return key, label[end + 1 :]


def _quoted(key: str) -> str:
    return json.dumps(key, ensure_ascii=False) if not key or "=" in key or key.startswith('"') else key


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value)
