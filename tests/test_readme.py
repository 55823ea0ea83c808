"""What the README says can be run, is run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bench import table
from tests.tiny import CONFIGS, CORPUS, tiny_tokenizer
from tests.train.setting import make_setting
from tools import tables

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder with some texts under the README's names."""
    (tmp_path / "texts.txt").write_text("\n".join(CORPUS) + "\n")
    make_setting(tmp_path).rename(tmp_path / "my-recipe.toml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_ten_lines_of_python_run(capsys):
    names = {}
    exec(compile(PYTHON[0], "README.md", "exec"), names)
    assert len(names["nuggets"][0]) < names["nuggets"][0].token_count / 2
    assert "Rain fell" in capsys.readouterr().out


def test_a_model_is_started_on_a_backbone_as_shown(tmp_path, monkeypatch):
    from transformers import BartForConditionalGeneration

    config = CONFIGS["bart"]()
    config.encoder_layers = 6
    monkeypatch.chdir(tmp_path)
    BartForConditionalGeneration(config).save_pretrained("facebook/bart-base")
    tiny_tokenizer().save_pretrained("facebook/bart-base")
    exec(compile(PYTHON[1], "README.md", "exec"), {})
    assert (tmp_path / "my-nugget-model" / "model.safetensors").is_file()


def test_the_commands_run(folder):
    commands = [shlex.split(line) for line in COMMANDS if line.startswith("textnuggets ")]
    assert len(commands) == 6
    for _, *arguments in commands:
        subprocess.run([sys.executable, "-m", "textnuggets", *arguments], check=True, capture_output=True)
    assert (folder / "page.html").is_file()
    assert (folder / "runs" / "first" / "best").is_dir()
    assert (folder / "runs" / "first" / "checkpoint-40").is_dir()


def test_the_makefile_has_the_two_targets_the_readme_names():
    makefile = (ROOT / "Makefile").read_text()
    targets = [line.split()[1] for line in COMMANDS if line.startswith("make ")]
    assert targets == ["demo", "test"]
    assert all(f"\n{target}:" in makefile for target in targets)


def test_every_link_of_the_docs_leads_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            is_elsewhere = target.startswith("https://")
            assert is_elsewhere or (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_tables_are_what_the_results_files_say():
    for tool in (table, tables):
        for page in tool.PAGES:
            text = page.read_text(encoding="utf-8")
            assert tool.fill(text) == text
