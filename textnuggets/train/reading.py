"""Recipes from TOML files: every key known, every value of its type, all of it possible."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from textnuggets.errors import ConfigError
from textnuggets.io.files import find_named
from textnuggets.train.checks import check_recipe
from textnuggets.train.recipe import Recipe, all_keys

SHIPPED = Path(__file__).parent.parent / "recipes"


def find_recipe(name: str) -> Path:
    """The file of a recipe: a path, or the name of one that comes with the package."""
    return find_named(name, SHIPPED, "recipe")


def read_recipe(path: str | Path, changes: Iterable[str] = (), checked: bool = True) -> Recipe:
    """A recipe from a TOML file, with `changes` such as `optimizer.lr=1e-4` put in, checked whole."""
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path}: the recipe cannot be read ({reason}).") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}.") from error
    recipe = _fill(Recipe, tables, str(path), "")
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            raise ConfigError(f"--set {change}: write it as key=value.")
        nested: dict[str, Any] = {}
        table = nested
        *parents, last = key.strip().split(".")
        for parent in parents:
            table = table.setdefault(parent, {})
        table[last] = _parse_value(text.strip())
        _update(recipe, nested, f"--set {change}", "")
        # A run starts from one of the two: what is set here takes the place of what the file has.
        if key.strip() == "model.start":
            recipe.model.backbone = None
        elif key.strip() == "model.backbone":
            recipe.model.start = None
    if checked:
        check_recipe(recipe, str(path))
    return recipe


def _fill(kind: type, tables: dict[str, Any], place: str, prefix: str) -> Any:
    made = kind()
    _update(made, tables, place, prefix)
    return made


def _update(part: Any, tables: dict[str, Any], place: str, prefix: str) -> None:
    """Put values into a part of a recipe, each checked against its field's type."""
    types = get_type_hints(type(part))
    for key, value in tables.items():
        if key not in types:
            raise ConfigError(f"{place}: unknown key {prefix + key!r}{_nearest(prefix + key)}.")
        current = getattr(part, key)
        if is_dataclass(current):
            if not isinstance(value, dict):
                raise ConfigError(f"{place}: {prefix + key} is a table of settings, not a value.")
            _update(current, value, place, f"{prefix}{key}.")
        elif isinstance(current, dict) and isinstance(value, dict):
            # Joined with what is there, but for an empty table, which empties it.
            setattr(part, key, value and {**current, **_typed(value, types[key], place, prefix + key)})
        else:
            setattr(part, key, _typed(value, types[key], place, prefix + key))


def _nearest(key: str) -> str:
    keys = all_keys()
    near = get_close_matches(key, keys, n=1, cutoff=0.6)
    if not near:  # the right name in the wrong table
        last = key.rpartition(".")[2]
        by_name = {name.rpartition(".")[2]: name for name in keys}
        near = [by_name[name] for name in get_close_matches(last, by_name, n=1, cutoff=0.6)]
    return f": did you mean {near[0]!r}?" if near else ""


def _typed(value: Any, kind: Any, place: str, key: str) -> Any:
    """The value as a field's type says, or a ConfigError."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        kind = next(option for option in inside if option is not type(None))
        return _typed(value, kind, place, key)
    if origin is Literal:
        if value in inside:
            return value
        expected = f"one of {', '.join(inside)}"
    elif origin is list and isinstance(value, list):
        return [_typed(item, inside[0], place, key) for item in value]
    elif origin is dict and isinstance(value, dict):
        return {name: _typed(item, inside[1], place, f"{key}.{name}") for name, item in value.items()}
    elif kind is Any:
        return value
    elif kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif kind in (int, str, bool) and type(value) is kind:
        return value
    else:
        names = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
        expected = names.get(kind, "a list" if origin is list else "a table")
    raise ConfigError(f"{place}: {key} must be {expected}, got {value!r}.")


def _parse_value(text: str) -> Any:
    """A TOML value; what is none is a string without quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
