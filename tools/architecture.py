"""python -m tools.architecture: write the map of the source into docs/architecture.md.

`LAYERS` is the only place where the order of layers is declared: the map is generated from it, and a test checks every
import against it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import textnuggets
from tools.marks import fill_marks

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "textnuggets"
PAGES = (ROOT / "docs" / "architecture.md",)
LAYERS = {
    "errors": "all errors and warnings",
    "io": "files, progress, documents and corpora; independent of any model",
    "checks": "checks of settings",
    "shipped": "the shipped models, by name",
    "config": "settings of a nugget model",
    "model": "the paper's section 3: from tokens to nuggets, and back",
    "onnx": "exported models, and encoding without torch",
    "data": "corpora as packed documents on disk, and batches of them",
    "analysis": "what nuggets preserve of a text",
    "bulk": "resumable encoding of any number of texts",
    "search": "an index of nuggets, and BM25",
    "causal": "nuggets in the cache of decoder-only language models",
    "lm": "language models that read nuggets (section 6.2)",
    "loading": "textnuggets.load",
    "train": "recipes, objectives and runs (section 4)",
    "evaluate": "the paper's questions, one file each (sections 5 and 6)",
    "integrations": "adapters to other libraries",
    "report": "claims, figures, plans, and one page of all results",
    "serve": "the HTTP API and its page",
    "cli": "one file per command",
}
"""A file may import from its own layer and from those listed before it."""
NEVER = {"serve": ("train", "evaluate", "report"), "evaluate": ("train",)}
"""Imports that are forbidden although the order allows them."""


def imports_of(path: Path) -> Iterator[str]:
    """Yield every module of this package that a file imports, including lazy imports and imports for types.

    A public name, as in `from textnuggets import NuggetModel`, counts as its module.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == SOURCE.name)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(path, node)
            if module.split(".")[0] == SOURCE.name:
                yield from (_home(module, alias.name) for alias in node.names)


def _absolute(path: Path, node: ast.ImportFrom) -> str:
    """Return the full name of the module in `from MODULE import ...`, which may be relative."""
    package = path.relative_to(SOURCE.parent).parts[: -node.level] if node.level else ()
    return ".".join([*package, *filter(None, [node.module])])


def _home(module: str, name: str) -> str:
    """Return the module that `from module import name` imports."""
    inner = SOURCE.parent / Path(*module.split("."), name)
    if name == "__version__" or inner.is_dir() or inner.with_suffix(".py").is_file():
        return f"{module}.{name}"
    return textnuggets._HOMES.get(name, module) if module == SOURCE.name else module


def module_of(path: Path) -> str:
    """Return the name of the module in a file."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str | None:
    """Return the layer of a module; None for the package itself."""
    return next(iter(module.split(".")[1:]), None)


def source_map() -> str:
    """Return every layer and file with the first line of its docstring."""
    lines = []
    for layer, job in LAYERS.items():
        folder = SOURCE / layer
        if not folder.is_dir():
            lines.append(f"{layer + '.py':<34} {job}")
            continue
        lines.append(f"{layer + '/':<34} {job}")
        for path in sorted(folder.rglob("*.py")):
            if path.name != "__init__.py":
                lines.append(f"  {path.relative_to(folder).as_posix():<32} {_summary(path)}")
    return "\n".join(["```", *lines, "```"])


def _summary(path: Path) -> str:
    """Return the first sentence of a file's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).removesuffix(".")


def fill(page: str) -> str:
    """Return a page with the map as it should be."""
    return fill_marks(page, {"map": source_map})


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")
