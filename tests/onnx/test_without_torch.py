"""Encoding, search and the server need neither torch nor transformers to be imported."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.tiny import CORPUS
from textnuggets import NuggetIndex, load

MODULES = [
    "analysis.highlight",
    "bulk.encode",
    "bulk.shards",
    "cli",
    "integrations.langchain",
    "integrations.mcp",
    "integrations.tables",
    "model.parquet",
    "search.index",
    "serve.app",
    "serve.loading",
]


def without_torch(*command):
    """Run a module in a process that cannot import torch or transformers."""
    return subprocess.run(
        [sys.executable, "-m", "tests.onnx.blocking", *command], capture_output=True, text=True, check=False
    )


def test_the_tests_would_notice_an_import_of_torch_or_transformers():
    for module in ("textnuggets.model.modeling", "textnuggets.config"):
        assert "must not be imported" in without_torch(module).stderr


def test_modules_that_encode_search_and_serve_import_neither_torch_nor_transformers():
    code = "import " + ", ".join(f"textnuggets.{module}" for module in MODULES)
    done = without_torch("tests.onnx.running", code)
    assert (done.returncode, done.stderr) == (0, "")


def test_public_names_that_need_no_weights_import_neither():
    code = "from textnuggets import NuggetIndex, Nuggets, load, load_nuggets, maxsim, save_nuggets"
    done = without_torch("tests.onnx.running", code)
    assert (done.returncode, done.stderr) == (0, "")


def test_commands_encode_index_and_search_with_an_export(exported, tmp_path):
    texts, index = tmp_path / "texts.jsonl", tmp_path / "index"
    texts.write_text(
        "".join(json.dumps({"id": str(i), "text": text}) + "\n" for i, text in enumerate(CORPUS))
    )
    for command in (
        ["encode", texts, "-o", tmp_path / "out.parquet", "--model", exported],
        ["index", texts, "-o", index, "--model", exported],
        ["search", index, CORPUS[1], "-k", "1"],
    ):
        done = without_torch("textnuggets", *map(str, command))
        assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1. 1")


def test_a_model_that_needs_torch_is_refused_in_one_line(source, tmp_path):
    (tmp_path / "texts.txt").write_text(CORPUS[0])
    command = [
        "encode",
        tmp_path / "texts.txt",
        "-o",
        tmp_path / "out.parquet",
        "--model",
        source.config.name_or_path,
    ]
    done = without_torch("textnuggets", *map(str, command))
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: this needs the package 'torch': pip install textnuggets. Without it, "
    )
    assert done.stderr.count("\n") == 1


def test_the_server_answers_with_an_export(exported, tmp_path):
    with NuggetIndex.create(tmp_path / "index", load(exported)) as index:
        index.add(["a", "b"], CORPUS[:2])
    code = f"""
from fastapi.testclient import TestClient
from textnuggets.serve.app import create_app
from textnuggets.serve.hosts import Hosts
from textnuggets.serve.loading import load_all
models, index = load_all([{str(exported)!r}], {str(tmp_path / "index")!r})
with TestClient(create_app(models, index, hosts=Hosts(["testserver"]))) as client:
    found = client.post("/search", json={{"query": {CORPUS[1]!r}, "k": 1}}).json()
    print(found["hits"][0]["id"])
    shown = client.post("/nuggets", json={{"texts": ["The cat sat."], "pieces": True}})
    print(shown.status_code)
    print(client.post("/reconstruct", json={{"texts": ["The cat sat."]}}).status_code)
"""
    done = without_torch("tests.onnx.running", code)
    assert done.stdout.split() == ["b", "200", "422"], done.stderr


def test_the_list_of_requirements_without_torch_is_complete():
    root = Path(__file__).parent.parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["search"], *extras["onnx"]]
    listed = [line for line in (root / "requirements-onnx.txt").read_text().splitlines() if line[:1] != "#"]
    assert set(needed) - set(listed) == {"textnuggets[search]", *filter(is_heavy, needed)}
    assert set(listed) <= set(needed)
    assert not any(map(is_heavy, listed))


def is_heavy(requirement):
    return requirement.startswith(("torch", "transformers"))
