"""Exports of tiny models, made once."""

from __future__ import annotations

import pytest

from tests.tiny import tiny_model
from textnuggets import load
from textnuggets.onnx.export import export_onnx


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """A tiny saved encoder, as loaded from its folder."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model("bert", selector="spread", gather="attention", query_ratio=0.5).save_pretrained(folder)
    return load(folder)


@pytest.fixture(scope="session")
def exported(source, tmp_path_factory):
    """Folder of its export."""
    folder = tmp_path_factory.mktemp("exports") / "float32"
    folder.mkdir()
    export_onnx(source, folder)
    return folder


@pytest.fixture(scope="session")
def rounded(source, tmp_path_factory):
    """Folder of its export with int8 weights."""
    folder = tmp_path_factory.mktemp("exports") / "int8"
    folder.mkdir()
    export_onnx(source, folder, int8=True)
    return folder
