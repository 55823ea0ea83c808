"""Read recipes from TOML files, with changes from the command line, and describe their keys."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from textnuggets.errors import ConfigError
from textnuggets.io.corpora import check_source
from textnuggets.io.files import find_named, read_toml
from textnuggets.train.recipe import Recipe, toml_value
from textnuggets.train.tables import Table

SHIPPED = Path(__file__).parent.parent / "recipes"

# Messages by pydantic's types of errors.
MESSAGES = {
    "bool_type": "must be true or false",
    "dict_type": "must be a table",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "greater_than": "must be above {gt:.12g}",
    "greater_than_equal": "must be at least {ge:.12g}",
    "int_type": "must be a whole number",
    "less_than": "must be below {lt:.12g}",
    "less_than_equal": "must be at most {le:.12g}",
    "list_type": "must be a list",
    "literal_error": "must be one of {expected}",
    "string_too_short": "must not be empty",
    "string_type": "must be a string",
    "too_long": "must have {max_length} values",
    "too_short": "must have {min_length} values",
}


class KeyDescription(NamedTuple):
    """A recipe key for the documentation."""

    key: str
    default: str
    """Default as TOML; empty if there is none."""
    meaning: str


def find_recipe(name: str) -> Path:
    """Return the file of a recipe, given by its path or by the name of a shipped recipe."""
    return find_named(name, SHIPPED, "recipe")


def read_recipe(path: str | Path, changes: Iterable[str] = (), check_corpora: bool = True) -> Recipe:
    """Read and validate a recipe.

    Args:
        path: TOML file.
        changes: Assignments such as `optimizer.lr=1e-4` that override the file.
        check_corpora: Whether to raise InputError if a corpus does not exist.
    """
    tables = read_toml(Path(path))
    origins: dict[str, str] = {}
    for change in changes:
        key, equals, text = (part.strip() for part in change.partition("="))
        if not equals:
            raise ConfigError(f"--set {change}: write it as key=value.")
        _assign(tables, key, _parse_value(text))
        origins[key] = f"--set {change}"
    try:
        recipe = Recipe.model_validate({"model": {}, "data": {}, **tables})
    except ValidationError as error:
        details = error.errors()[0]
        raise ConfigError(f"{_origin(details, origins) or path}: {_message(details)}") from error
    if check_corpora:
        for source in (*recipe.data.train, *recipe.data.dev):
            check_source(source)
    return recipe


def _parse_value(text: str) -> Any:
    """Return the TOML value of a text, or the text itself if it is not TOML: a string without quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _assign(tables: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key."""
    for name in reversed(key.split(".")):
        value = {name: value}
    _merge(tables, value)
    # A run starts from a backbone or from a model: the one that is set replaces the one in the file.
    alternatives = {"model.start": "backbone", "model.backbone": "start"}
    if key in alternatives:
        tables["model"].pop(alternatives[key], None)


def _merge(tables: dict[str, Any], changes: dict[str, Any]) -> None:
    """Update tables recursively; an empty table empties the one it is assigned to."""
    for name, value in changes.items():
        current = tables.get(name)
        if value and isinstance(value, dict) and isinstance(current, dict):
            _merge(current, value)
        else:
            tables[name] = value


# -------------------------------------------------------------------- errors


def _origin(details: ErrorDetails, origins: dict[str, str]) -> str | None:
    """Return the last change that set the key of an error or a part of it; None if it is in the file."""
    if details["type"] == "value_error":  # a rule between keys, of which the file may have set others
        return None
    key = ".".join(map(str, details["loc"])) + "."
    changes = [
        change for name, change in origins.items() if f"{name}.".startswith(key) or key.startswith(f"{name}.")
    ]
    return changes[-1] if changes else None


def _message(details: ErrorDetails) -> str:
    """Return a validation error as one sentence that names the key."""
    key, value, context = _key(details["loc"]), details["input"], details.get("ctx", {})
    match details["type"]:
        case "extra_forbidden":
            return f"unknown key {key!r}{_suggestion(key)}"
        case "value_error":  # raised by a rule between keys, which it names
            return str(context["error"])
        case "model_type":
            return f"{key} must be a table of settings, got {value!r}."
        case kind if kind in MESSAGES:
            options = {**context, "expected": str(context.get("expected")).replace("'", "")}
            return f"{key} {MESSAGES[kind].format(**options)}, got {value!r}."
        case _:
            return f"{key}: {details['msg']}, got {value!r}."


def _key(location: tuple[int | str, ...]) -> str:
    """Return the location of an error as a dotted key, such as `objective.ratios[1]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")


def _suggestion(key: str) -> str:
    """Return the end of the sentence about an unknown key, which names the nearest known key if there is one."""
    keys = [*Recipe.model_fields, *(name for name, _ in _fields(Recipe))]
    near = get_close_matches(key, keys, n=1, cutoff=0.6)
    if not near:  # perhaps the right name in the wrong table
        by_name = {name.rpartition(".")[2]: name for name in keys}
        near = [by_name[name] for name in get_close_matches(key.rpartition(".")[2], by_name, n=1, cutoff=0.6)]
    return f": did you mean {near[0]!r}?" if near else "."


# -------------------------------------------------------------------- documentation


def describe_keys() -> list[KeyDescription]:
    """Return every key of a recipe with its default and its meaning."""
    described = []
    for key, field in _fields(Recipe):
        default = field.get_default(call_default_factory=True)
        meaning = " ".join((field.description or "").split())
        described.append(KeyDescription(key, "" if default is None else toml_value(default), meaning))
    return described


def _fields(table: type[Table], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield every key that holds a value, dotted, with its field."""
    for name, field in table.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Table):
            yield from _fields(kind, f"{prefix}{name}.")
        else:
            yield prefix + name, field
