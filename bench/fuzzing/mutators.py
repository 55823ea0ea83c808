"""Damage to one file: bytes, and the structure of JSON, TOML, JSON lines, Parquet, safetensors and gzip.

`damage` returns a content that differs in bytes or in meaning; `rewrite` one that differs only in its bytes.
"""

from __future__ import annotations

import gzip
import json
import struct
import tomllib
import zlib
from collections.abc import Callable
from pathlib import PurePath
from random import Random
from typing import Any

from bench.fuzzing.tables import change_table, rewrite_table
from textnuggets.train.recipe import toml_value

# Strings that a file cannot hold as a value: they are replaced in the written text.
TWICE, DEEP = "@twice@", "@deep@"
NESTED = 100_000  # levels; Python's parsers stop at about 1,000
VALUES: tuple[Any, ...] = (
    *(None, True, False, "", "x", "0.5", "\ud800", "a\u0000b", "\u202e", "é" * 300, "x" * 70_000),
    *("../../outside.txt", "/dev/zero", "..", ".", "~", "here/../m", "https://localhost:1/x", "{x}"),
    *(0, 1, -1, 2, 7, 255, 2**31, 2**63, -(2**63) - 1, 10**30, 10**400),
    *(0.0, -0.0, 0.5, 1e-320, 1e308, -1e9, float("nan"), float("inf"), float("-inf")),
    *([], {}, [None], [[]], {"": None}, {"x": {"x": []}}, [1, "x", None], [float("nan")], DEEP),
)
BYTES = (
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n\n",
    b"\x1b[31m",
    b"{",
    b'"',
    b"\t",
    b"\xe2\x80\xa8",
)


def damage(name: str, content: bytes, random: Random) -> tuple[bytes, str]:
    """Return a damaged content of a file and what was done; the file name tells its format."""
    change = _STRUCTURED.get(PurePath(name).suffix)
    if change is not None and content and random.random() < 0.75:
        try:
            return change(name, content, random)
        except (
            ValueError,
            ArithmeticError,
            RecursionError,
            EOFError,
            OSError,
            zlib.error,
            struct.error,
        ):  # it was damaged before, so its structure is lost
            pass
    return change_bytes(content, random)


def change_bytes(content: bytes, random: Random) -> tuple[bytes, str]:
    """Flip, insert, remove, repeat or cut bytes."""
    place = random.randrange(len(content) + 1)
    kind = random.choice(
        ("flip", "flip", "flip", "overwrite", "insert", "remove", "cut", "repeat", "empty", "append")
    )
    if kind == "empty":
        return b"", "empty file"
    if kind == "append":
        return content + random.randbytes(random.randrange(1, 64)), "append random bytes"
    if kind == "flip" and content:
        flipped = bytearray(content)
        for _ in range(random.choice((1, 1, 1, 4, 32))):
            flipped[random.randrange(len(content))] ^= 1 << random.randrange(8)
        return bytes(flipped), "flip bits"
    if kind == "overwrite":
        return content[:place] + random.randbytes(8) + content[place + 8 :], f"overwrite 8 bytes at {place}"
    if kind == "remove":
        return content[:place] + content[place + random.randrange(1, 64) :], f"remove bytes at {place}"
    if kind == "cut":
        return content[:place], f"cut at {place}"
    if kind == "repeat":
        return content[:place] * 2 + content[place:], f"repeat the first {place} bytes"
    return content[:place] + random.choice(BYTES) + content[place:], f"insert bytes at {place}"


# ---------------------------------------------------------------- trees of values


def change_tree(tree: Any, random: Random) -> tuple[Any, str]:
    """Change one value of nested lists and objects: another value, another key, none at all, or twice."""
    parents = list(_containers(tree, "$"))
    if not parents:
        return random.choice(VALUES), "replace the value"
    path, parent = random.choice(parents)
    keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
    if not keys:
        return _add(tree, path, parent, random)
    key = random.choice(keys)
    kind = random.choice(
        ("replace", "replace", "replace", "number", "remove", "rename", "twice", "swap", "add")
    )
    if kind == "number" and isinstance(parent[key], (int, float)) and not isinstance(parent[key], bool):
        factor = random.choice((-1, 0.5, 2, 3, 1000, 1e9))
        scaled = parent[key] * factor + random.choice((0, 1, -1))
        parent[key] = int(scaled) if isinstance(parent[key], int) and abs(scaled) < 1e300 else scaled
    elif kind == "remove":
        del parent[key]
    elif kind == "rename" and isinstance(parent, dict):
        parent[random.choice((str(key) + "x", str(key).upper(), "", "__class__"))] = parent.pop(key)
    elif kind == "twice":
        if isinstance(parent, dict):
            parent[TWICE + str(key)] = random.choice(VALUES)
        else:
            parent.insert(key, parent[key])
    elif kind == "swap":
        other = random.choice(keys)
        parent[key], parent[other] = parent[other], parent[key]
    elif kind == "add":
        return _add(tree, path, parent, random)
    else:
        parent[key] = random.choice(VALUES)
    return tree, f"{kind} {path}[{key!r}]"


def _add(tree: Any, path: str, parent: Any, random: Random) -> tuple[Any, str]:
    value = random.choice(VALUES)
    if isinstance(parent, dict):
        parent[
            random.choice(("unknown", "auto_map", "quantization_config", "_attn_implementation", "dtype"))
        ] = value
    else:
        parent.append(value)
    return tree, f"add to {path}"


def _containers(tree: Any, path: str) -> Any:
    if isinstance(tree, (dict, list)):
        yield path, tree
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for key, value in list(items)[:50]:  # the first entries of a vocabulary are enough
            yield from _containers(value, f"{path}[{key!r}]")


def _written(text: str) -> bytes:
    """Return the text of a tree with its marks replaced."""
    return text.replace(f'"{TWICE}', '"').replace(f'"{DEEP}"', "[" * NESTED + "]" * NESTED).encode()


def _json(name: str, content: bytes, random: Random) -> tuple[bytes, str]:
    del name
    tree, note = change_tree(json.loads(content), random)
    return _written(json.dumps(tree, indent=1)), note


def _toml(name: str, content: bytes, random: Random) -> tuple[bytes, str]:
    del name
    tree, note = change_tree(tomllib.loads(content.decode()), random)
    return _written(to_toml(tree)), note


def to_toml(tree: dict[str, Any]) -> str:
    """Return the tables of a TOML file, each in one line; values that TOML lacks become strings."""
    return "".join(f"{toml_value(str(key))} = {_to_toml(value)}\n" for key, value in tree.items())


def _to_toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{toml_value(str(key))} = {_to_toml(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_to_toml, value))}]"
    return toml_value("null" if value is None else value)


def _lines(name: str, content: bytes, random: Random) -> tuple[bytes, str]:
    """Damage one line of a text, of JSON lines or of a table with tabs."""
    lines = content.splitlines(keepends=True)
    number = random.randrange(len(lines))
    kind = random.choice(("value", "value", "value", "bytes", "remove", "twice", "join", "swap", "add"))
    if kind == "value" and name.endswith(".jsonl"):
        changed, note = _json(name, lines[number], random)
        lines[number] = b" ".join(changed.split(b"\n")) + b"\n"
        return b"".join(lines), f"line {number + 1}: {note}"
    if kind == "value" and name.endswith(".tsv"):
        fields = lines[number].rstrip(b"\n").split(b"\t")
        fields[random.randrange(len(fields))] = random.choice(
            (b"", b"-1", b"nan", b"9" * 5000, b"\xff", b"x\ty")
        )
        lines[number] = b"\t".join(fields) + b"\n"
    elif kind == "remove":
        del lines[number]
    elif kind == "twice":
        lines.insert(number, lines[number])
    elif kind == "join":
        lines[number] = lines[number].rstrip(b"\n")
    elif kind == "swap":
        lines[0], lines[number] = lines[number], lines[0]
    elif kind == "add":
        added = (
            b"\n",
            b"null\n",
            b"[]\n",
            b"{}\n",
            b'{"text": 1}\n',
            b"x" * 100_000 + b"\n",
            b"\xff\n",
            b" \t \n",
        )
        lines.insert(number, random.choice(added))
    else:
        lines[number], note = change_bytes(lines[number], random)
        return b"".join(lines), f"line {number + 1}: {note}"
    return b"".join(lines), f"{kind} line {number + 1}"


def _weights(name: str, content: bytes, random: Random) -> tuple[bytes, str]:
    """Damage the header or the numbers of a safetensors file."""
    header, data = split_weights(content)
    kind = random.choice(("header", "header", "number", "cut", "length"))
    if kind == "header":
        changed, note = _json(name, header, random)
        return join_weights(changed, data), f"header: {note}"
    if kind == "length":
        length = random.choice((0, 1, len(header) - 1, len(header) + 8, 2**31, 2**63))
        return struct.pack("<Q", length) + content[8:], f"length of the header {length}"
    if kind == "cut":
        return join_weights(header, data[: random.randrange(len(data) or 1)]), "cut the numbers"
    place = 4 * random.randrange(max(len(data) // 4, 1))
    value = random.choice((float("nan"), float("inf"), float("-inf"), 3e38, 0.0, 1.0))
    return join_weights(
        header, data[:place] + struct.pack("<f", value) + data[place + 4 :]
    ), f"number {value}"


def split_weights(content: bytes) -> tuple[bytes, bytes]:
    """Return the header and the numbers of a safetensors file."""
    (length,) = struct.unpack("<Q", content[:8])
    return content[8 : 8 + length], content[8 + length :]


def join_weights(header: bytes, data: bytes) -> bytes:
    """Return a safetensors file of a header and numbers."""
    return struct.pack("<Q", len(header)) + header + data


def _zipped(name: str, content: bytes, random: Random) -> tuple[bytes, str]:
    changed, note = damage(name.removesuffix(".gz"), gzip.decompress(content), random)
    return gzip.compress(changed), f"inside: {note}"


def _table(name: str, content: bytes, random: Random) -> tuple[bytes, str]:
    del name
    return change_table(content, random, lambda tree: change_tree(tree, random))


Change = Callable[[str, bytes, Random], tuple[bytes, str]]
_STRUCTURED: dict[str, Change] = {
    ".json": _json,
    ".toml": _toml,
    ".jsonl": _lines,
    ".txt": _lines,
    ".md": _lines,
    ".tsv": _lines,
    ".parquet": _table,
    ".safetensors": _weights,
    ".gz": _zipped,
}


# ---------------------------------------------------------------- changes without a meaning


def rewrite(name: str, content: bytes, random: Random) -> tuple[bytes, str] | None:
    """Return other bytes with the same meaning, or None for a format that has none here."""
    kind = PurePath(name).suffix
    if kind == ".json":
        return json.dumps(
            json.loads(content), indent=random.choice((None, 0, 4))
        ).encode() + b"\n\n", "other spaces"
    if kind == ".toml":
        return b"# a remark\r\n" + to_toml(
            tomllib.loads(content.decode())
        ).encode(), "inline tables and a remark"
    if kind == ".jsonl":
        end = random.choice((b"\r\n", b"\n\n", b" \n"))
        lines = (
            json.dumps(json.loads(line), ensure_ascii=random.random() < 0.5) for line in content.splitlines()
        )
        return b"".join(line.encode() + end for line in lines), "other spaces and line ends"
    if kind == ".gz":
        return gzip.compress(content[:0]) + gzip.compress(
            gzip.decompress(content), random.choice((1, 9))
        ), "two members"
    if kind == ".parquet":
        return rewrite_table(content, random), "another compression and size of row groups"
    return None
