"""Exported models in the place of others: loading, indexes, files of nuggets and errors."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from tests.tiny import CORPUS, tiny_model
from textnuggets import NuggetIndex, load, load_nuggets, save_nuggets
from textnuggets.bulk.encode import encode_to_parquet
from textnuggets.errors import BackboneError, CheckpointError, ConfigError, IndexFileError
from textnuggets.io.documents import Document
from textnuggets.model.fingerprint import fingerprint
from textnuggets.onnx.model import OnnxModel

IDS = [f"doc-{i}" for i in range(len(CORPUS))]


def test_load_tells_exports_from_other_models(source, exported):
    assert isinstance(load(exported), OnnxModel)
    assert isinstance(load(str(exported), backend="onnx"), OnnxModel)
    with pytest.raises(
        CheckpointError, match="is not an ONNX model: export it first, with: textnuggets export"
    ):
        load(source.config.name_or_path, backend="onnx")
    with pytest.raises(CheckpointError, match="is an ONNX model: load it without backend='torch'"):
        load(exported, backend="torch")
    with pytest.raises(ConfigError, match="backend must be 'torch' or 'onnx', got 'tf'"):
        load(exported, backend="tf")
    with pytest.raises(ConfigError, match="runs on the CPU, not on 'cuda'"):
        load(exported, "cuda")
    with pytest.raises(ConfigError, match="takes no option 'dtype'"):
        load(exported, dtype="float16")


def test_it_has_the_methods_of_a_model_that_encodes(source, exported):
    model = load(exported)
    query, documents = model.encode_query(CORPUS[0]), model.encode_document(CORPUS)
    assert len(query) == len(source.encode_query(CORPUS[0]))
    expected = source.similarity(source.encode_query(CORPUS[0]), source.encode(CORPUS))
    np.testing.assert_allclose(model.similarity(query, documents), expected, atol=1e-5)
    assert [len(item) for item in model.encode_iter(CORPUS, max_vectors=2)] == [2] * len(CORPUS)
    assert model.encode("cat", convert_to_tensor=True).shape[1] == source.dim
    with pytest.raises(BackboneError, match="a bert backbone, which has no decoder"):
        model.reconstruct(query)


def test_an_index_takes_the_model_and_its_exports_and_no_other(source, exported, rounded, tmp_path):
    with NuggetIndex.create(tmp_path / "index", source) as index:
        index.add(IDS, CORPUS)
        expected = index.search(CORPUS[1], k=3)[0].id
    for folder in (exported, rounded):
        with NuggetIndex.open(tmp_path / "index", load(folder)) as index:
            assert index.search(CORPUS[1], k=3)[0].id == expected
            assert index.add(IDS, CORPUS).unchanged == len(CORPUS)
    with pytest.raises(IndexFileError, match="has other weights or another tokenizer"):
        NuggetIndex.open(tmp_path / "index", tiny_model("bert", selector="even"))


def test_an_index_names_the_export_that_built_it(source, rounded, tmp_path):
    with NuggetIndex.create(tmp_path / "index", load(rounded)) as index:
        index.add(IDS, CORPUS)
        assert index.manifest.fingerprint == f"{fingerprint(source)}-int8"
    with NuggetIndex.open(tmp_path / "index") as index:
        assert isinstance(index.model, OnnxModel)
        assert index.search(CORPUS[2], k=1)[0].id == "doc-2"
    with NuggetIndex.open(tmp_path / "index", source) as index:
        assert index.search(CORPUS[2], k=1)[0].id == "doc-2"


def test_files_of_nuggets_fit_an_index_of_the_same_weights(source, exported, rounded, tmp_path):
    documents = [Document(name, text) for name, text in zip(IDS, CORPUS, strict=True)]
    encode_to_parquet(load(rounded), documents, tmp_path / "out.parquet", name=str(rounded), with_text=True)
    with NuggetIndex.create(tmp_path / "index", source) as index:
        assert index.add_encoded(tmp_path / "out.parquet").written == len(CORPUS)
    assert load_nuggets(tmp_path / "out.parquet", load(exported))[0] == IDS
    save_nuggets(tmp_path / "again.parquet", load(exported).encode(CORPUS))


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_damaged_file_is_found_before_it_is_used(exported, tmp_path, name):
    folder = shutil.copytree(exported, tmp_path / "copy")
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{name} is missing or damaged: export the model again"):
        load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "has the format 2; this version reads 1"),
        ({"window": "64"}, "'window' is '64'"),
        ({"ratio": 3.0}, "'ratio' is 3.0"),
        ({"special_ids": [None]}, "'special_ids' is"),
        ({"precision": "int4"}, "'precision' is 'int4'"),
    ],
)
def test_damaged_settings_are_named(exported, tmp_path, change, message):
    folder = shutil.copytree(exported, tmp_path / "copy")
    settings = json.loads((folder / "onnx.json").read_text())
    (folder / "onnx.json").write_text(json.dumps({**settings, **change}))
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_commands_that_need_torch_say_so(run, exported, tmp_path):
    save_nuggets(tmp_path / "out.parquet", load(exported).encode(CORPUS))
    result = run("reconstruct", tmp_path / "out.parquet", "--model", exported)
    assert result.returncode == 2
    assert "is an ONNX model, which only encodes: give the model that it was exported from" in result.stderr


def test_highlighting_works_with_an_export(run, source, exported, tmp_path):
    (tmp_path / "texts.txt").write_text(CORPUS[0] + "\n")
    shown = [
        run("highlight", tmp_path / "texts.txt", "--model", folder)
        for folder in (exported, source.config.name_or_path)
    ]
    assert shown[0].returncode == 0, shown[0].stderr
    assert shown[0].stdout == shown[1].stdout


def test_warnings_about_unknown_languages_are_the_same(source, exported):
    text = "Ωμέγα και άλφα " * 10
    messages = []
    for model in (source, load(exported)):
        with pytest.warns(UserWarning, match="unknown to the model") as caught:
            model.encode(text)
        messages.append(str(caught[0].message))
    assert messages[0] == messages[1]
