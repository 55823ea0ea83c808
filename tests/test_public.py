"""The public API, and the structure of the source."""

from __future__ import annotations

import subprocess
import sys

import pytest

import textnuggets
from tools import architecture
from tools.architecture import LAYERS, NEVER, ROOT, SOURCE, imports_of, layer_of


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


def test_a_missing_extra_names_the_command_that_installs_it():
    from textnuggets.errors import MissingExtraError

    error = MissingExtraError("sacrebleu", "evaluate", "--against")
    assert str(error) == "--against needs the package 'sacrebleu': pip install 'textnuggets[evaluate]'"


def test_files_import_only_from_their_own_layer_and_those_above():
    order = list(LAYERS)
    found = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")}
    assert found - {"__init__", "__main__"} == set(order)
    for path in SOURCE.rglob("*.py"):
        layer = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if layer in ("__init__", "__main__"):
            continue
        for module in imports_of(path):
            target = layer_of(module)
            if target is None:  # only the version, not a lazily imported public name
                assert "__version__" in path.read_text(encoding="utf-8"), path
                continue
            assert order.index(target) <= order.index(layer), f"{path} imports {module}"
            assert target not in NEVER.get(layer, ()), f"{path} imports {module}"


def test_no_file_is_too_long():
    for folder in (SOURCE, ROOT / "tools", ROOT / "bench"):
        for path in folder.rglob("*.py"):
            assert len(path.read_text(encoding="utf-8").splitlines()) <= 350, path


def test_the_map_of_the_source_is_up_to_date():
    for page in architecture.PAGES:
        text = page.read_text(encoding="utf-8")
        assert architecture.fill(text) == text
