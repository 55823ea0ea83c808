"""Both distributions build without a warning, and what they install works without the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path
from site import getsitepackages
from typing import NamedTuple

import pytest

import textnuggets
from textnuggets.errors import MissingExtraError

ROOT = Path(__file__).parent.parent
LIMIT = 95_000_000  # bytes of a wheel; PyPI refuses files of more than 100 MB
URLS = {"Homepage", "Documentation", "Changelog", "Issues"}
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist", ".*")


class Built(NamedTuple):
    """Files and output of two builds."""

    root: Path
    models: Path
    source: Path
    log: str


def call(*command, cwd=None):
    """Run a command as a user would: outside of the repository, with byte-compiling, without a network."""
    hidden = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**env, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the package by way of its source distribution, and the wheel of the models."""
    folder = tmp_path_factory.mktemp("wheels")
    copy, out = folder / "copy", folder / "out"
    copy.mkdir()
    licences = (path.name for path in ROOT.glob("LICENSE*"))
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "CHANGELOG.md", *licences):
        shutil.copy(ROOT / name, copy)
    for name in ("textnuggets", "models", "examples"):
        shutil.copytree(ROOT / name, copy / name, ignore=IGNORED, copy_function=os.symlink)
    (copy / "tests").mkdir()  # setuptools would add these to the source distribution by itself
    (copy / "tests" / "test_nothing.py").touch()
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", out)
    log = call(*build, copy) + call(*build, "--wheel", copy / "models")
    (root,), (models,) = out.glob("textnuggets-*.whl"), out.glob("textnuggets_models-*.whl")
    (source,) = out.glob("textnuggets-*.tar.gz")
    return Built(root, models, source, log)


@pytest.fixture(scope="module")
def bin_folder(built, tmp_path_factory):
    """The programs of an environment with both wheels; dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False, symlinks=True)
    programs = folder / "bin"
    pip = (sys.executable, "-m", "pip", "--python", programs / "python", "--disable-pip-version-check")
    call(*pip, "install", "--quiet", "--no-index", "--no-deps", "--no-compile", built.root, built.models)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Python reads no .pth files of folders that are named in one: an editable install stays invisible.
    (packages / "dependencies.pth").write_text("\n".join(getsitepackages()) + "\n")
    return programs


def metadata_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_building_prints_no_warning(built):
    assert [
        line for line in built.log.splitlines() if "warn" in line.lower() or "deprecat" in line.lower()
    ] == []


def test_twine_accepts_what_was_built(built):
    shown = call(sys.executable, "-m", "twine", "check", "--strict", built.root, built.models, built.source)
    assert shown.count("PASSED") == 3


def test_wheels_fit_the_limit_of_pypi(built):
    assert built.root.stat().st_size <= LIMIT
    assert built.models.stat().st_size <= LIMIT


def test_metadata_names_licences_addresses_and_python(built):
    root, models = metadata_of(built.root), metadata_of(built.models)
    assert root["License-Expression"] == "Apache-2.0 AND CC-BY-4.0 AND MIT"
    assert root.get_all("License-File") == ["LICENSE", "LICENSE-CC-BY-4.0", "LICENSE-MIT"]
    assert models["License-Expression"] == "Apache-2.0 AND CC-BY-4.0"
    assert models.get_all("License-File") == ["LICENSE", "LICENSE-CC-BY-4.0"]
    assert root["Version"] == models["Version"] == textnuggets.__version__
    assert f'textnuggets-models=={models["Version"]}; extra == "models"' in root.get_all("Requires-Dist")
    for found in (root, models):
        assert found["Requires-Python"] == ">=3.11"
        assert {line.split(",")[0] for line in found.get_all("Project-URL")} == URLS


def test_each_wheel_has_its_own_models_and_nothing_of_the_other(built):
    with zipfile.ZipFile(built.root) as archive:
        root = archive.namelist()
    with zipfile.ZipFile(built.models) as archive:
        models = archive.namelist()
    assert {name.split("/")[0] for name in root} == {
        "textnuggets",
        f"textnuggets-{textnuggets.__version__}.dist-info",
    }
    assert not any(name.startswith("textnuggets/") for name in models)
    data = {
        path.relative_to(ROOT).as_posix()
        for folder in ("models", "plans", "recipes")
        for path in (ROOT / "textnuggets" / folder).rglob("*")
        if path.is_file()
    }
    assert data | {"textnuggets/py.typed", "textnuggets/serve/page.html"} <= set(root)
    weights = {
        path.relative_to(ROOT / "models").as_posix()
        for path in (ROOT / "models" / "textnuggets_models").glob("*/*")
        if path.is_file()
    }
    assert weights <= set(models)


def test_the_source_distribution_has_neither_tests_nor_weights_of_the_models(built):
    with tarfile.open(built.source) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    folders = {name.split("/")[0] for name in names if "/" in name}
    assert folders == {"examples", "textnuggets", "textnuggets.egg-info"}
    assert "examples/demo.py" in names


# One process, since importing torch takes long on a busy machine.
PROGRAM = """
import runpy, sys, textnuggets, textnuggets_models
print(textnuggets.__file__, textnuggets_models.__file__, flush=True)
runpy.run_path("demo.py", run_name="__main__")
sys.argv = [sys.argv[1], "encode", "texts.txt", "-o", "out.parquet"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_the_demo_and_the_command_run_from_the_wheels(bin_folder, tmp_path):
    assert call(bin_folder / "textnuggets", "--version") == f"textnuggets {textnuggets.__version__}\n"
    shutil.copy(ROOT / "examples" / "demo.py", tmp_path)
    (tmp_path / "texts.txt").write_text("Rain fell all night.\nThe river had risen.\n")
    shown = call(bin_folder / "python", "-c", PROGRAM, bin_folder / "textnuggets", cwd=tmp_path).splitlines()
    assert all(path.startswith(str(bin_folder.parent)) for path in shown[0].split())
    assert [line[0] for line in shown if line[:1].isdigit()] == ["1", "2", "3", "4"]
    assert sum(line.startswith(("   same", "   differs")) for line in shown) == 4
    assert "out.parquet: 2 texts" in shown
    assert (tmp_path / "out.parquet").is_file()


def test_without_the_models_the_error_for_lm_names_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "textnuggets_models", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'textnuggets\[models\]'"):
        textnuggets.load("lm")
    assert textnuggets.load("search").config.ratio > 0
