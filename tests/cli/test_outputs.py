"""Outputs of commands: never a file that the command reads, under whatever name."""

from __future__ import annotations

import io
import json
import sys

import pytest

from tests.tiny import CORPUS, tiny_model
from tests.train.setting import make_setting
from textnuggets.cli import main


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folder of an untrained model with a decoder."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model("bart").save_pretrained(folder)
    return folder


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in CORPUS))
    return path


@pytest.fixture
def nuggets(run, texts, tmp_path, saved):
    path = tmp_path / "nuggets.parquet"
    assert run("encode", texts, "-o", path, "--model", saved, "--with-text").returncode == 0
    return path


def alias(kind, path, name):
    """Return another name of a file: itself, a link, a hard link or a path with dots."""
    other = path.with_name(name)
    if kind == "link":
        other.symlink_to(path)
    elif kind == "hard link":
        other.hardlink_to(path)
    elif kind == "dots":
        (path.parent / "inner").mkdir(exist_ok=True)
        return path.parent / "inner" / ".." / path.name
    else:
        return path
    return other


def refuse(run, *arguments, reads):
    """Check that a command is refused in one line, and leaves what it reads as it is."""
    before = reads.read_bytes()
    result = run(*arguments)
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith("error: ")
    assert result.stderr.endswith(": write to another file.\n")
    assert result.stderr.count("\n") == 1
    assert reads.read_bytes() == before


@pytest.mark.parametrize("kind", ["itself", "link", "hard link", "dots"])
def test_files_are_not_replaced_by_what_is_made_of_them(run, texts, nuggets, saved, kind):
    out = alias(kind, texts, "other.jsonl")
    refuse(run, "encode", texts, "-o", out, "--model", saved, reads=texts)
    refuse(run, "highlight", texts, "--html", out, "--model", saved, reads=texts)
    refuse(run, "reconstruct", nuggets, "--against", texts, "-o", out, reads=texts)
    out = alias(kind, nuggets, "other.parquet")
    refuse(run, "reconstruct", nuggets, "-o", out, reads=nuggets)
    refuse(run, "encode", nuggets, "-o", out, "--model", saved, reads=nuggets)


def test_lines_in_progress_do_not_replace_an_input(run, texts, nuggets, tmp_path):
    (tmp_path / "out.jsonl.partial").symlink_to(texts)
    refuse(run, "reconstruct", nuggets, "--against", texts, "-o", tmp_path / "out.jsonl", reads=texts)


def test_a_shard_is_not_replaced_by_the_nuggets_of_another(run, texts, nuggets, tmp_path, saved):
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(texts.read_bytes())
    (folder / "b.parquet").write_bytes(nuggets.read_bytes())
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.parquet").symlink_to(folder / "b.parquet")
    refuse(run, "encode", folder, "-o", tmp_path / "out", "--model", saved, reads=folder / "b.parquet")
    refuse(run, "encode", folder, "-o", folder, "--model", saved, reads=folder / "b.parquet")


def test_the_model_that_is_used_is_not_replaced(run, texts, nuggets, saved):
    for name in ("config.json", "model.safetensors"):
        file = saved / name
        refuse(run, "encode", texts, "-o", file, "--model", saved, reads=file)
        refuse(run, "highlight", "A text.", "--html", file, "--model", saved, reads=file)
        refuse(run, "reconstruct", nuggets, "-o", file, reads=file)


def test_a_file_on_standard_input_is_not_replaced(texts, saved, monkeypatch, capsys):
    before = texts.read_bytes()
    monkeypatch.setattr(sys, "argv", ["textnuggets", "encode", "-", "-o", str(texts), "--model", str(saved)])
    with texts.open("rb") as stream:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"error: {texts} is the input file: write to another file.\n"
    assert texts.read_bytes() == before


@pytest.mark.parametrize(
    ("question", "name"),
    [("reconstruction", "reconstruction.md"), ("preferences", "preferences.png"), ("probing", "probing-128.svg"),
     ("fidelity", "fidelity.json")],
)  # fmt: skip
def test_a_corpus_is_not_replaced_by_results(run, texts, tmp_path, saved, question, name):
    out = tmp_path / "results"
    out.mkdir()
    (out / name).symlink_to(texts)
    refuse(run, "evaluate", question, saved, texts, "-o", out, reads=texts)
    refuse(run, "evaluate", question, saved, tmp_path, "-o", out, reads=texts)


def test_a_corpus_is_not_replaced_by_perplexities_or_a_task(run, texts, tmp_path, saved):
    (tmp_path / "perplexity.md").symlink_to(texts)
    refuse(run, "lm", "evaluate", saved, texts, "--out", tmp_path, reads=texts)
    task = tmp_path / "task.jsonl"
    task.write_text("{}\n")
    refuse(run, "data", "reranking", task, "-o", tmp_path, reads=task)
    refuse(run, "data", "paraphrase", task, "-o", tmp_path, reads=task)


def test_results_and_plans_are_not_replaced_by_a_report(run, tmp_path):
    results = tmp_path / "similarity.json"
    results.write_text("{}")
    refuse(run, "report", tmp_path, "-o", results, reads=results)
    plan = tmp_path / "plan.toml"
    plan.write_text('[[train]]\nname = "a"\nrecipe = "search"\n')
    (tmp_path / "report.html").hardlink_to(plan)
    refuse(run, "reproduce", plan, "-o", tmp_path, reads=plan)


def test_a_run_does_not_replace_its_corpora_or_the_model_it_starts_from(run, tmp_path):
    recipe, out = make_setting(tmp_path), tmp_path / "run"
    out.mkdir()
    corpus = tmp_path / "train.jsonl"
    (out / "metrics.jsonl").hardlink_to(corpus)
    refuse(run, "train", recipe, "-o", out, reads=corpus)
    (out / "metrics.jsonl").unlink()
    (tmp_path / "backbone").rename(out / "best")
    weights = out / "best" / "model.safetensors"
    refuse(run, "train", recipe, "-o", out, "--set", f"model.backbone={out / 'best'}", reads=weights)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trim", "m", "-o", "x" * 300, "--texts", "t.txt"], "xxx ...: File name too long."),
        (["highlight", "a", "--model", "x" * 300], "xxx ...: File name too long."),
        (["index", "t.txt", "-o", "x" * 300, "--model", "m"], "xxx ...: File name too long."),
        (["index", "t.txt", "-o", "t.txt/../t.txt", "--model", "m"], "t.txt: File exists."),
    ],
)
def test_a_name_that_no_file_can_have_is_bad_input(run, tmp_path, monkeypatch, saved, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").symlink_to(saved)
    (tmp_path / "t.txt").write_text("a\tb\n")
    refused = run(*arguments)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
