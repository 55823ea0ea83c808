"""Settings of a model exported to ONNX, and the files in its folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from textnuggets.checks import Settings
from textnuggets.errors import CheckpointError, InputError
from textnuggets.io.files import read_json_object
from textnuggets.io.hashing import digest_files

CONFIG, GRAPH, TOKENIZER = "onnx.json", "model.onnx", "tokenizer.json"
FORMAT = 1
Precision = Literal["float32", "int8"]


@dataclass
class OnnxConfig(Settings):
    """Settings of an exported model (`onnx.json`)."""

    format: int
    """Version of the format of the folder."""
    version: str
    """Version of textnuggets that exported the model."""
    fingerprint: str
    """Fingerprint of the model: that of its weights in torch, with the suffix `-int8` if they were rounded."""
    precision: Precision
    """Precision of the weights of linear layers."""
    architecture: str
    """Architecture of the backbone."""
    dimensions: int
    """Dimensions of a nugget."""
    window: int
    """Maximum number of tokens encoded at once, including special tokens."""
    ratio: float
    query_ratio: float | None
    selector: str
    gather: str
    objective: str | None
    pad_id: int
    unknown_id: int | None
    """Id of unknown pieces, if the tokenizer has one."""
    special_ids: list[int]
    digests: dict[str, str]
    """SHA-256 of the graph and the tokenizer."""
    name_or_path = ""

    def save(self, folder: Path) -> None:
        """Write the settings, with the digests of the other files."""
        self.digests = {name: digest_files(folder / name) for name in (GRAPH, TOKENIZER)}
        (folder / CONFIG).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> OnnxConfig:
        """Read the settings of a folder; raise CheckpointError if they are damaged or do not fit its files."""
        try:
            data = read_json_object(folder / CONFIG)
        except InputError as error:
            raise CheckpointError(f"{error} Export the model again.") from error
        if data.get("format") != FORMAT:
            raise CheckpointError(
                f"{folder / CONFIG} has the format {data.get('format')!r}; this version reads {FORMAT}: export the model "
                f"again."
            )
        for field in fields(cls):
            if field.name not in data or not _VALID[str(field.type)](data[field.name]):
                raise CheckpointError(
                    f"{folder / CONFIG} is damaged: {field.name!r} is {data.get(field.name)!r}. Export the model again."
                )
        found = cls(**{field.name: data[field.name] for field in fields(cls)})
        for name in (GRAPH, TOKENIZER):
            path = folder / name
            if not path.is_file() or digest_files(path) != found.digests.get(name):
                raise CheckpointError(f"{path} is missing or damaged: export the model again.")
        found.name_or_path = str(folder)
        return found


def is_onnx(name: str | Path) -> bool:
    """Return whether a folder holds a model exported to ONNX."""
    return (Path(name) / CONFIG).is_file()


def _is_int(value: Any) -> bool:
    return type(value) is int and value >= 0


_VALID: dict[str, Callable[[Any], bool]] = {
    "int": _is_int,
    "int | None": lambda value: value is None or _is_int(value),
    "float": lambda value: type(value) in (int, float) and 0 < value <= 1,
    "float | None": lambda value: value is None or (type(value) in (int, float) and 0 < value <= 1),
    "str": lambda value: isinstance(value, str),
    "str | None": lambda value: value is None or isinstance(value, str),
    "Precision": lambda value: value in ("float32", "int8"),
    "list[int]": lambda value: isinstance(value, list) and all(map(_is_int, value)),
    "dict[str, str]": lambda value: isinstance(value, dict),
}
"""What a setting of each type may be; all floats are ratios."""
