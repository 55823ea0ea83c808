"""The public surface: few names, loaded lazily."""

from __future__ import annotations

import subprocess
import sys

import pytest

import textnuggets


def test_the_public_names_are_these_and_all_resolve():
    assert set(dir(textnuggets)) == {
        "NuggetConfig", "NuggetIndex", "NuggetLM", "NuggetModel", "Nuggets", "TextnuggetsError", "__version__",
        "load", "load_nuggets", "maxsim", "save_nuggets",
    }  # fmt: skip
    for name in textnuggets.__all__:
        assert getattr(textnuggets, name).__doc__, name


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, textnuggets; print({'torch', 'transformers', 'numpy'} & set(sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "set()\n"
    )


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nugets'"):
        textnuggets.Nugets  # noqa: B018


def test_a_missing_extra_names_the_line_that_installs_it():
    from textnuggets.errors import MissingExtraError

    error = MissingExtraError("sacrebleu", "evaluate", "--against")
    assert str(error) == "--against needs the package 'sacrebleu': pip install 'textnuggets[evaluate]'"


def test_files_import_only_from_above():
    """The layers, in dependency order: a file may import its own or an earlier layer."""
    import ast
    from pathlib import Path

    order = [
        "errors",
        "shipped",
        "files",
        "config",
        "progress",
        "text",
        "model",
        "search",
        "highlighting",
        "fidelity",
        "bulk",
        "shards",
        "lm",
        "loading",
        "train",
        "evaluate",
        "reproduce",
        "serve",
        "cli",
        "__main__",
    ]
    root = Path(textnuggets.__file__).parent
    for path in root.rglob("*.py"):
        layer = path.relative_to(root).parts[0].removesuffix(".py")
        if layer == "__init__":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("textnuggets."):
                target = node.module.split(".")[1]
                assert order.index(target) <= order.index(layer), f"{path} imports {node.module}"
