"""The public API, and the structure of the source."""

from __future__ import annotations

import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import textnuggets
from tools import architecture
from tools.architecture import LAYERS, NEVER, ROOT, SOURCE, imports_of, layer_of, module_of


def test_the_public_names_are_these_and_all_resolve():
    assert set(dir(textnuggets)) == {
        "CausalNuggetLM", "NuggetConfig", "NuggetIndex", "NuggetLM", "NuggetModel", "Nuggets", "TextnuggetsError", "__version__",
        "as_sentence_transformer", "load", "load_nuggets", "maxsim", "save_nuggets",
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


def violations(paths):
    """Imports that the order of layers does not allow."""
    order = list(LAYERS)
    for path in paths:
        layer = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for module in imports_of(path):
            target = layer_of(module)
            if target == "__version__":
                continue
            if (
                target is None  # the package itself, whose names may come from any layer
                or order.index(target) > order.index(layer)
                or target in NEVER.get(layer, ())
            ):
                yield f"{path.relative_to(SOURCE)} imports {module}"


def files():
    return [path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or not path.name.startswith("__")]


def test_files_import_only_from_their_own_layer_and_those_before_it():
    assert {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in files()} == set(LAYERS)
    assert list(violations(files())) == []


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("io/planted.py", "import textnuggets.model.windows"),
        ("io/planted.py", "from textnuggets.model import windows"),
        ("io/planted.py", "from textnuggets import model"),
        ("io/planted.py", "from textnuggets import NuggetModel"),
        ("io/planted.py", "from textnuggets import __version__, load"),
        ("io/planted.py", "import textnuggets"),
        ("io/planted.py", "from ..model import windows"),
        ("io/planted.py", "from .. import model"),
        ("io/planted.py", "def lazy():\n    from textnuggets.model.windows import Window"),
        ("io/planted.py", "if TYPE_CHECKING:\n    from textnuggets.model.windows import Window"),
        ("serve/routes/planted.py", "from textnuggets.train.run import train"),
        ("serve/routes/planted.py", "from ...evaluate import stats"),
        ("evaluate/planted.py", "from textnuggets.train.recipe import Recipe"),
    ],
)
def test_an_import_against_the_order_is_found_in_every_form(monkeypatch, file, code):
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: code)
    assert {line.split()[0] for line in violations([SOURCE / file])} == {file}


def test_files_do_not_import_each_other_in_a_circle():
    # Parts that NuggetModel inherits from take the model itself, as a type only.
    typed = {f"textnuggets.model.{name}" for name in ("decoding", "interface", "torch_encoder", "trial")}
    graph = {module_of(path): set(imports_of(path)) for path in files()}
    for name in typed:
        graph[name] -= {"textnuggets.model.modeling"}
    TopologicalSorter(graph).prepare()  # raises CycleError with the modules of the circle


def test_no_file_is_too_long():
    for folder in (SOURCE, ROOT / "tools", ROOT / "bench", ROOT / "tests"):
        for path in folder.rglob("*.py"):
            assert len(path.read_text(encoding="utf-8").splitlines()) <= 350, path


def test_the_map_of_the_source_is_up_to_date():
    for page in architecture.PAGES:
        text = page.read_text(encoding="utf-8")
        assert architecture.fill(text) == text


def test_the_walks_through_the_source_name_files_that_exist():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walks = page.split("## Five walks through it")[1]
    layer = None
    for name in re.findall(r"`([\w/]+\.py)`", walks):
        if (SOURCE / name).is_file():
            layer = name.split("/")[0]
        else:
            assert (SOURCE / layer / name).is_file(), name
