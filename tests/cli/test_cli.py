"""The command line, called as users call it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
import torch

from tests.tiny import CORPUS
from textnuggets import load, load_nuggets, save_nuggets
from textnuggets.errors import InputError


def run_process(*arguments, env=None):
    """Run the command in a new process, for output that depends on the environment."""
    return subprocess.run(
        [sys.executable, "-m", "textnuggets", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        timeout=300,
        check=False,
    )


def error_of(result):
    """Return the one-line error message."""
    assert result.returncode == 2, result.stderr
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    return line


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(CORPUS) + "\n")
    return path


def test_help_imports_neither_torch_nor_transformers():
    code = (
        "import sys; sys.argv = ['textnuggets', 'encode', '--help']\n"
        "from textnuggets.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'transformers', 'pyarrow', 'numpy', 'rich'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "Encode texts into nuggets." in shown
    assert shown.strip().endswith("[]")


def test_encode_and_reconstruct_give_the_texts_back(run, texts, tmp_path, copier_folder):
    out = tmp_path / "out.parquet"
    made = run("encode", texts, "-o", out, "--model", copier_folder, "--dtype", "float16", "--with-text")
    assert made.returncode == 0, made.stderr
    assert made.stdout == ""
    frame = pd.read_parquet(out)
    assert frame.text.tolist() == CORPUS
    assert (frame.vectors.map(len) < frame.token_count).all()

    back = run("reconstruct", out, "--against", texts)
    assert back.returncode == 0, back.stderr
    rows = [json.loads(line) for line in back.stdout.splitlines()]
    assert [row["text"] for row in rows] == CORPUS
    assert all(row["exact"] and row["bleu"] == 100.0 for row in rows)
    assert "BLEU 100.00, exact 100.0%, 5 texts" in back.stderr

    saved = run("reconstruct", out, "-o", tmp_path / "back.jsonl", "--beams", 1, "--against", out)
    assert saved.returncode == 0, saved.stderr
    assert saved.stdout == ""
    assert len((tmp_path / "back.jsonl").read_text().splitlines()) == 5


def test_texts_come_from_standard_input_and_bad_lines_are_counted(run, tmp_path, copier_folder):
    out = tmp_path / "out.parquet"
    lines = '{"text": "The cat sat.", "id": "x"}\nbroken\n{"text": "Rain fell."}\n'
    refused = run("encode", "-", "-o", out, "--model", copier_folder, stdin=lines)
    assert "standard input, line 2: not JSON" in error_of(refused)
    assert not out.exists()
    skipped = run("encode", "-", "-o", out, "--model", copier_folder, "--skip-bad", stdin=lines)
    assert skipped.returncode == 0, skipped.stderr
    assert "skipped: standard input, line 2" in skipped.stderr
    assert "2 texts; 1 bad lines skipped" in skipped.stderr
    assert pd.read_parquet(out).id.tolist() == ["x", "3"]


def test_a_killed_run_is_resumed(run, tmp_path, copier_folder):
    texts, out, whole = tmp_path / "a.txt", tmp_path / "out.parquet", tmp_path / "whole.parquet"
    texts.write_text("\n".join(CORPUS[i % 5][:12] for i in range(2300)))
    command = ["encode", texts, "-o", out, "--model", copier_folder]
    child = subprocess.Popen(
        [sys.executable, "-m", "textnuggets", *map(str, command)],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    partial = tmp_path / "out.parquet.partial"
    deadline = time.monotonic() + 120
    while not list(partial.glob("part-*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not out.exists()
    assert "add --resume" in error_of(run(*command))
    assert run(*command, "--resume").returncode == 0
    assert run("encode", texts, "-o", whole, "--model", copier_folder).returncode == 0
    assert pd.read_parquet(out).astype(str).equals(pd.read_parquet(whole).astype(str))


def test_highlight_marks_nuggets_in_brackets_without_colours_and_writes_a_page(
    run, texts, tmp_path, copier_folder
):
    plain = run("highlight", CORPUS[0], "--model", copier_folder)
    assert plain.returncode == 0, plain.stderr
    assert "[" in plain.stdout
    coloured = run_process(
        "highlight", texts, "--model", copier_folder, env={"FORCE_COLOR": "1", "COLORTERM": "truecolor"}
    )
    assert "\x1b[" in coloured.stdout
    page = tmp_path / "page.html"
    assert run("highlight", texts, "--model", copier_folder, "--html", page).returncode == 0
    assert page.read_text().count('<p class="highlighted">') == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["encode", "nowhere.txt", "-o", "x.parquet"], "nowhere.txt: no such file"),
        (["encode", "nowhere.xyz", "-o", "x.parquet"], "use .txt, .jsonl or .parquet"),
        (
            ["encode", "-", "-o", "x.parquet", "--dtype", "int8"],
            "must be float32, float16 or float64, got 'int8'",
        ),
        (["encode", "-"], "Missing option"),
        (["encode", "-", "-o", "x.parquet", "--ratoi", "1"], "No such option: --ratoi"),
        (["encode", "-", "-o", "x.parquet", "--batch-size", "0"], "Invalid value for '--batch-size'"),
        (["reconstruct", "nowhere.parquet"], "nowhere.parquet: no such file"),
        (["frobnicate"], "No such command 'frobnicate'"),
        (["highlight", "nowhere.txt"], "nowhere.txt: no such file"),
        (["encode", "-", "-o", "."], "'.' is a folder: name a file to write"),
        (["encode", "-", "-o", "nowhere/x.parquet"], "the folder nowhere does not exist"),
    ],
)
def test_bad_input_is_one_line_and_code_two(run, arguments, message):
    assert message in error_of(run(*arguments, stdin=""))


def test_a_missing_or_invalid_model_is_a_one_line_error(run, texts, tmp_path, copier_folder):
    out = tmp_path / "x.parquet"
    failed = run("encode", texts, "-o", out, "--model", tmp_path / "nothing")
    assert f"cannot load '{tmp_path}/nothing': no such folder." in error_of(failed)
    (tmp_path / "empty").mkdir()
    assert "contains no model" in error_of(run("encode", texts, "-o", out, "--model", tmp_path / "empty"))
    assert "must be above 0 and at most 1, got 2" in error_of(
        run("encode", texts, "-o", out, "--model", copier_folder, "--ratio", "2")
    )
    assert not out.exists()
    assert not (tmp_path / "x.parquet.partial").exists()


def test_the_input_is_never_overwritten(run, texts, copier_folder):
    assert "is the input file" in error_of(run("encode", texts, "-o", texts, "--model", copier_folder))
    assert texts.read_text().startswith(CORPUS[0])


def test_without_arguments_it_shows_its_help(run):
    shown = run()
    assert shown.returncode == 0
    assert "Commands:" in shown.stdout


def test_plain_output_is_the_text_in_any_locale(copier_folder):
    text = "猫" * 120 + " :cat: \t x"
    shown = run_process(
        "highlight", text, "--model", copier_folder, "--ratio", "0.01", env={"PYTHONIOENCODING": "ascii"}
    )
    assert shown.returncode == 0, shown.stderr
    assert (
        shown.stdout.replace("[", "").replace("]", "").replace("</s>", "").replace("<s>", "").strip() == text
    )


def test_an_original_that_is_missing_is_named(run, texts, tmp_path, copier_folder):
    out = tmp_path / "out.parquet"
    run("encode", texts, "-o", out, "--model", copier_folder)
    fewer = tmp_path / "fewer.txt"
    fewer.write_text(CORPUS[0] + "\n")
    result = run("reconstruct", out, "--against", fewer, "--beams", 1, "-o", tmp_path / "back.jsonl")
    assert "has no text with id '2'" in error_of(result)
    assert not (tmp_path / "back.jsonl").exists()


def test_line_breaks_come_back_through_a_file(run, tmp_path, copier_folder):
    texts, out = tmp_path / "a.jsonl", tmp_path / "out.parquet"
    poem = "The cat sat on the mat,\n\n\tand the dog lay by the door.\n"
    texts.write_text(json.dumps({"text": poem}) + "\n")
    assert run("encode", texts, "-o", out, "--model", copier_folder).returncode == 0
    back = run("reconstruct", out, "--doubtful", 1)
    row = json.loads(back.stdout)
    assert row["text"] == poem
    assert [word["word"] for word in row["doubtful"]] == poem.split()
    for word in row["doubtful"]:
        assert poem[word["start"] : word["end"]] == word["word"]
        assert 0 < word["probability"] < 1
    assert "doubtful" not in json.loads(run("reconstruct", out).stdout)
    for share in (0, 1.5):
        assert "'--doubtful': must be above 0 and at most 1" in error_of(
            run("reconstruct", out, "--doubtful", share)
        )


def test_a_warning_is_one_plain_line(run, tmp_path, copier_folder):
    texts = tmp_path / "a.txt"
    texts.write_text("the | cat ½\n" * 3)
    made = run("encode", texts, "-o", tmp_path / "out.parquet", "--model", copier_folder)
    warned, done = made.stderr.splitlines()
    assert made.returncode == 0
    assert warned.startswith("warning: ")
    assert warned.endswith("cannot be decoded again: '|', '½'.")
    assert done.endswith("out.parquet: 3 texts")
    folder = tmp_path / "several"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("the | cat\n")
    several = run("encode", folder, "-o", tmp_path / "out", "--model", copier_folder)
    assert several.stderr.count("warning: ") == 1
    assert "'|'." in several.stderr


def test_texts_that_do_not_reach_a_fidelity_are_counted_on_standard_error(run, tmp_path, copier_folder):
    texts, out = tmp_path / "a.txt", tmp_path / "out.parquet"
    texts.write_text(f"{CORPUS[0]}\nThe dogs read the letter near the bridge, until morning.\n")
    made = run("encode", texts, "-o", out, "--model", copier_folder, "--fidelity", 0.95)
    assert made.returncode == 0, made.stderr
    assert "warning: fidelity 0.95 was not reached by 1 of 2 texts" in made.stderr
    assert pd.read_parquet(out).fidelity.lt(0.95).tolist() == [False, True]


def test_decoding_nuggets_of_a_model_without_decoder_names_the_model_and_the_fix(run, texts, tmp_path):
    out = tmp_path / "out.parquet"
    assert run("encode", texts, "-o", out).returncode == 0
    line = error_of(run("reconstruct", out, "-o", tmp_path / "back.jsonl"))
    assert "was encoded by the model 'search', which has no decoder" in line
    assert "--model reconstruct" in line
    assert not list(tmp_path.glob("back*"))


def test_nuggets_of_another_model_are_decoded_only_if_forced(run, texts, tmp_path, copier_folder):
    out, other = tmp_path / "out.parquet", tmp_path / "other"
    assert run("encode", texts, "-o", out, "--model", copier_folder).returncode == 0
    model = load(copier_folder)
    assert load_nuggets(out, model)[0] == list("12345")
    torch.nn.init.ones_(model.scorer.out.weight)
    model.save_pretrained(other)
    line = error_of(run("reconstruct", out, "--model", other))
    assert f"{out} was encoded by the model {copier_folder!r} with weights" in line
    assert line.endswith("use the model that encoded it, or --force to decode them all the same.")
    with pytest.raises(InputError, match="use the model that encoded it"):
        load_nuggets(out, model)
    forced = run("reconstruct", out, "--model", other, "--force")
    assert forced.returncode == 0
    assert len(forced.stdout.splitlines()) == len(CORPUS)


def test_nuggets_of_an_unknown_model_are_decoded_by_the_given_one(run, tmp_path, copier, copier_folder):
    out = tmp_path / "out.parquet"
    save_nuggets(out, copier.encode(CORPUS))
    back = run("reconstruct", out, "--model", copier_folder)
    assert [json.loads(line)["text"] for line in back.stdout.splitlines()] == CORPUS
    assert "does not record the model" in error_of(run("reconstruct", out))


def test_a_fidelity_uses_the_model_with_a_decoder_by_default(run, texts, tmp_path, monkeypatch):
    requested = []

    def load(name):
        requested.append(name)
        raise InputError("stop here")

    monkeypatch.setattr(sys.modules["textnuggets.cli.encode"], "load_any", load)
    run("encode", texts, "-o", tmp_path / "x.parquet", "--fidelity", 0.9)
    run("encode", texts, "-o", tmp_path / "x.parquet")
    assert requested == ["reconstruct", None]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume"], "several files resume automatically"),
        (["--workers", "3"], "--workers 3 has no effect without --engine ray"),
        (["--address", "a:1", "--engine", "local"], "--address a:1 has no effect without --engine ray"),
        (["--ratio", "0.1", "--fidelity", "0.9"], "--ratio and --fidelity cannot be combined"),
    ],
)
def test_options_without_effect_are_refused(run, tmp_path, arguments, message):
    assert message in error_of(run("encode", tmp_path, "-o", tmp_path / "out", *arguments))
