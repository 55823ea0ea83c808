"""Exported models encode as the models that they were made of."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from tests.tiny import CORPUS, tiny_model
from textnuggets.onnx.export import export_onnx
from textnuggets.onnx.model import OnnxModel
from textnuggets.onnx.rewriting import to_int8

LONG = " ".join(CORPUS * 2)  # several windows
TEXTS = [*CORPUS, "", "cat", "the dog lay by the door", LONG]


def check_same(nuggets, expected, atol):
    for one, other in zip(nuggets, expected, strict=True):
        assert one.tokens == other.tokens
        assert one.layout == other.layout
        assert one.comparable == other.comparable
        for name in ("positions", "spans", "windows"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        for name in ("scores", "vectors"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=atol)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("bert", {"selector": "even", "gather": "content", "dim": 8}),
        ("bert", {"selector": "learned", "feedback": False, "scorer_layer": 3}),
        ("distilbert", {"selector": "even_content", "gather": "mean"}),
        ("roberta", {"selector": "spread", "gather": "both"}),
        ("mpnet", {"selector": "learned"}),
        ("modernbert", {"selector": "spread"}),
        ("marian", {"selector": "spread", "objective": "autoencode"}),
        ("t5", {"selector": "learned"}),
    ],
)
def test_an_export_encodes_like_the_model(family, settings, tmp_path):
    model = tiny_model(family, **settings)
    found = export_onnx(model, tmp_path)
    assert found.positions == 1
    exported = OnnxModel(tmp_path)
    check_same(exported.encode(TEXTS, 0.3), model.encode(TEXTS, 0.3), 1e-5)
    check_same(exported.encode(CORPUS, max_vectors=2), model.encode(CORPUS, max_vectors=2), 1e-5)
    check_same([exported.encode(CORPUS[0], 1.0)], [model.encode(CORPUS[0], 1.0)], 1e-5)


def test_int8_weights_take_less_space_and_change_vectors_little(source, exported, rounded):
    before, after = (onnx.load(folder / "model.onnx").graph.initializer for folder in (exported, rounded))
    layers = [item for item in after if item.data_type == onnx.TensorProto.INT8 and len(item.dims) == 2]
    assert (
        len(layers) == 4 * 3
    )  # of each of three layers: queries, keys and values; output; both of the feed-forward
    assert sum(len(item.raw_data) for item in after) < sum(len(item.raw_data) for item in before)
    names = [item.name for item in after]
    assert "model.backbone.embeddings.word_embeddings.weight" in names
    for one, other in zip(OnnxModel(rounded).encode(CORPUS), source.encode(CORPUS), strict=True):
        cosines = (one.vectors * other.vectors).sum(1)
        cosines /= np.linalg.norm(one.vectors, axis=1) * np.linalg.norm(other.vectors, axis=1)
        assert cosines.mean() > 0.95


def test_rounding_to_int8_uses_seven_bits_of_each_column():
    weight = np.array([[1.0, 0.0, -4.0], [-0.6, 0.0, 2.1]], np.float32)
    values, scales = to_int8(weight)
    assert values.tolist() == [[63, 0, -63], [-38, 0, 33]]
    np.testing.assert_allclose(values * scales, weight, atol=scales.max() / 2)


def test_the_command_writes_a_folder_that_the_other_commands_read(run, source, tmp_path):
    out = tmp_path / "out"
    made = run("export", source.config.name_or_path, "-o", out, "--onnx", "--int8")
    assert made.returncode == 0, made.stderr
    assert "MB; on a few texts, " in made.stderr
    assert sorted(path.name for path in out.iterdir()) == ["model.onnx", "onnx.json", "tokenizer.json"]
    assert json.loads((out / "onnx.json").read_text())["precision"] == "int8"
    again = run("export", source.config.name_or_path, "-o", out, "--onnx")
    assert (again.returncode, again.stderr) == (2, f"error: {out} already exists: choose a new folder.\n")


def test_the_command_asks_for_the_format(run, tmp_path):
    result = run("export", "search", "-o", tmp_path / "out")
    assert (result.returncode, result.stderr) == (2, "error: name the format to write: --onnx.\n")
