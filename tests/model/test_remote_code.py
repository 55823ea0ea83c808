"""Code in a model folder is never run, whatever the folder says and whatever stands on standard input."""

from __future__ import annotations

import ast
import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import textnuggets
from tests.tiny import CORPUS, tiny_model
from textnuggets import NuggetLM, NuggetModel
from textnuggets.causal.base import load_base
from textnuggets.errors import ConfigError, TextnuggetsError
from textnuggets.model.token_encoder import load_token_encoder
from textnuggets.model.vocabulary import trim

SOURCE = Path(textnuggets.__file__).parent


@pytest.fixture
def hostile(tmp_path):
    """A nugget model and a backbone whose files name code to run, which would leave a file behind."""
    model = tiny_model("bart")
    model.save_pretrained(tmp_path / "nugget")
    model.backbone.save_pretrained(tmp_path / "backbone")
    model.tokenizer.save_pretrained(tmp_path / "backbone")
    for folder in (tmp_path / "nugget", tmp_path / "backbone"):
        (folder / "evil.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Evil:\n    pass\n"
        )
        for file, names in (
            ("config.json", {"AutoConfig": "evil.Evil", "AutoModel": "evil.Evil"}),
            ("tokenizer_config.json", {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}),
        ):
            settings = json.loads((folder / file).read_text())
            settings["auto_map"] = names
            if file == "tokenizer_config.json":
                settings["tokenizer_class"] = "Evil"
            (folder / file).write_text(json.dumps(settings))
    return tmp_path


@pytest.mark.parametrize(
    ("folder", "load"),
    [
        ("nugget", textnuggets.load),
        ("nugget", NuggetModel.from_pretrained),
        ("nugget", NuggetLM.from_pretrained),
        ("nugget", load_token_encoder),
        ("nugget", lambda name: trim(name, CORPUS)),
        ("backbone", NuggetModel.from_backbone),
        ("backbone", load_token_encoder),
        ("backbone", load_base),
        ("backbone", lambda name: trim(name, CORPUS)),
    ],
)
def test_no_way_to_load_runs_code_of_the_folder(hostile, folder, load, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with contextlib.suppress(TextnuggetsError):  # it may be refused; it must not be run
        load(str(hostile / folder))
    assert not (hostile / "ran").exists()


def test_a_text_on_standard_input_is_not_consent(hostile):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "textnuggets",
            "encode",
            "-",
            "--model",
            hostile / "nugget",
            "-o",
            "out.parquet",
        ],
        cwd=hostile,
        input="y\ny\ny\n",
        capture_output=True,
        text=True,
    )
    assert not (hostile / "ran").exists()
    assert done.returncode == 2
    assert "refers to its own Python code, which is never run" in done.stderr


def test_asking_for_remote_code_is_refused(hostile):
    with pytest.raises(ConfigError, match="is never run"):
        NuggetModel.from_backbone(str(hostile / "backbone"), trust_remote_code=True)


def test_every_automatic_class_is_told_not_to_trust_remote_code():
    seen = 0
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = node.func.value
            is_auto = isinstance(owner, ast.Name) and owner.id.lower().startswith("auto")
            if node.func.attr == "from_pretrained" and is_auto:
                seen += 1
                trusted = {word.arg: ast.unparse(word.value) for word in node.keywords}
                assert trusted.get("trust_remote_code") == "False", f"{path}:{node.lineno}"
    assert seen >= 3
