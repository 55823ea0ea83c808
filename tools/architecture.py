"""python -m tools.architecture: write the map of the source into docs/architecture.md.

`LAYERS` is the only place where the order of layers is declared: the map is made from it, and a test checks every import
against it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tools.marks import fill_marks

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "textnuggets"
PAGES = (ROOT / "docs" / "architecture.md",)
LAYERS = {
    "errors": "every error and warning a user can meet, in one tree",
    "io": "files, progress, documents and corpora; knows no model",
    "shipped": "the models that ship, by name",
    "config": "settings of a nugget model",
    "model": "the paper's section 3: from tokens to nuggets, and back",
    "data": "corpora as packed documents on disk, and batches of them",
    "analysis": "what the nuggets of a text keep and know",
    "bulk": "files of any number of texts, encoded and resumed",
    "search": "an index of nuggets, and BM25",
    "lm": "language models that read nuggets (section 6.2)",
    "loading": "textnuggets.load",
    "train": "recipes, objectives and runs (section 4)",
    "evaluate": "the paper's questions, one file each (sections 5 and 6)",
    "report": "claims, figures, plans, and one page of all results",
    "serve": "the HTTP API and its page",
    "cli": "one file per command",
}
"""A file may import from its own layer and from those above it."""
NEVER = {"serve": ("train", "evaluate", "report"), "evaluate": ("train",)}
"""Layers that must not be imported although they come first."""


def imports_of(path: Path) -> Iterator[str]:
    """Yield every module of this package that a file imports, lazily or for types alone, too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == SOURCE.name)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == SOURCE.name:
            for alias in node.names:
                inner = SOURCE.parent / Path(*node.module.split("."), alias.name)
                is_module = inner.is_dir() or inner.with_suffix(".py").is_file()
                yield f"{node.module}.{alias.name}" if is_module else node.module


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
