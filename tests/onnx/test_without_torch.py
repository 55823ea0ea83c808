"""Encoding, search and the server need neither torch nor transformers to be imported."""

from __future__ import annotations

import subprocess
import sys

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
