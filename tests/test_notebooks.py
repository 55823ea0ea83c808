"""The notebooks: valid, without outputs, and every cell runs, here on tiny models."""

from __future__ import annotations

import json
import warnings

import nbformat
import pytest

import textnuggets
from tests.lm.setting import make_lm
from tests.pages import ROOT
from tests.tiny import CONFIGS, CORPUS, tiny_model, tiny_tokenizer
from textnuggets.model.backbone import build_backbone

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
STAND_INS = {
    "search": lambda: tiny_model("bert", selector="spread", residual="off"),
    "reconstruct": tiny_model,
    "lm": make_lm,
}
DOCUMENTS = {
    "letters/1871.txt": "The engineers had warned that the old piers would not stand another flood. The bridge fell.",
    "letters/1872.txt": "My sister was married in the spring. There was music until the morning.",
    "cats.md": "# Cats\n\nThe cat sat on the mat and slept by the stove.",
}


def cells(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a tiny backbone and texts under the names that the notebooks use."""
    for name, text in DOCUMENTS.items():
        path = tmp_path / "my-documents" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in CORPUS))
    (tmp_path / "article.txt").write_text(" ".join(CORPUS * 12), encoding="utf-8")
    backbone = tmp_path / "facebook" / "bart-base"
    config = CONFIGS["bart"]()
    config.update({"encoder_layers": 4})  # one above the notebook's scorer
    build_backbone(config).save_pretrained(backbone)
    tiny_tokenizer().save_pretrained(backbone)
    monkeypatch.setattr(textnuggets, "load", lambda name: STAND_INS[name]())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
@pytest.mark.usefixtures("folder")
def test_every_cell_of_the_notebook_runs(path, capsys):
    names = {"__name__": "__main__"}
    with warnings.catch_warnings():
        # Random models know neither the languages nor all characters of the texts.
        warnings.simplefilter("ignore", textnuggets.errors.TextnuggetsWarning)
        for cell in cells(path):
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"{path.name}, {cell['id']}", "exec"), names)
    assert capsys.readouterr().out.count("\n") > 10


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_the_notebook_is_valid_and_without_outputs(path):
    nbformat.validate(nbformat.read(path, as_version=4))
    code = [cell for cell in cells(path) if cell["cell_type"] == "code"]
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"]] == []
    assert cells(path)[0]["source"][0].startswith("# ")
