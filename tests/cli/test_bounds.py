"""Arguments that are empty or out of bounds: refused with the bounds, for every command."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import get_args, get_type_hints

import pytest

from textnuggets.cli import app


def commands(group, path=()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield every command with its function."""
    for command in group.registered_commands:
        yield (*path, command.name or command.callback.__name__.replace("_", "-")), command.callback
    for inner in group.registered_groups:
        yield from commands(inner.typer_instance, (*path, inner.name))


def numeric_options() -> Iterator[tuple[tuple[str, ...], str, type]]:
    """Yield every option with a number, with a command line that has all other arguments, and its type."""
    for path, function in commands(app):
        hints = get_type_hints(function, include_extras=True)
        needed = list(path)
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.default is parameter.empty:
                _, setting = get_args(hints[name])
                needed += ["x"] if type(setting).__name__ == "ArgumentInfo" else [f"--{name}", "x"]
        for name in inspect.signature(function).parameters:
            kind, setting = get_args(hints[name])
            kinds = {kind, *get_args(kind)} & {int, float}
            if kinds:
                # Within Annotated, typer takes the first name for the default.
                option = (
                    setting.default if isinstance(setting.default, str) else f"--{name.replace('_', '-')}"
                )
                yield tuple(needed), option, kinds.pop()


OPTIONS = list(numeric_options())


def test_the_options_of_all_commands_are_found():
    assert {line[0] for line, _, _ in OPTIONS} == {
        "encode", "reconstruct", "highlight", "index", "search", "serve", "trim", "lm", "data", "evaluate",
    }  # fmt: skip
    assert len(OPTIONS) > 40


@pytest.mark.parametrize(("line", "option", "kind"), OPTIONS)
def test_numbers_out_of_bounds_are_refused(run, line, option, kind):
    for value in ("-5", str(10**30), *(("nan", "inf", "-inf") if kind is float else ())):
        refused = run(*line, f"{option}={value}" if option.startswith("--") else f"{option}{value}")
        assert refused.returncode == 2
        assert f"Invalid value for '{option}'" in refused.stderr
        assert refused.stderr.count("\n") == 1


def test_the_bounds_are_named(run):
    for arguments, message in {
        ("reconstruct", "a.parquet", "--beams", "999"): "100",
        (
            "encode",
            "a.txt",
            "-o",
            "b",
            "--ratio",
            "nan",
        ): "'--ratio': must be above 0 and at most 1, got nan.",
        ("lm", "generate", "lm", "--prompt", "-", "--sample", "--temperature", "inf"): (
            "'--temperature': must be at least 0.01 and at most 100, got inf."
        ),
        ("evaluate", "probing", "m", "a.txt", "-o", "b", "--max-tokens", "64,-5"): (
            "--max-tokens must be at least 8 and at most 1,000,000, got -5."
        ),
        ("evaluate", "reconstruction", "m", "a.txt", "-o", "b", "--ratios", "0.1,nan"): (
            "--ratios must be at least 0 and at most 1, got nan."
        ),
        (
            "lm",
            "evaluate",
            "lm",
            "a.txt",
            "--history",
            "-1",
        ): "--history must be at least 0 and at most 10,000",
    }.items():
        refused = run(*arguments)
        assert refused.returncode == 2
        assert message in refused.stderr
        assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["encode", "", "-o", "out"],
        ["encode", "a.txt", "-o", ""],
        ["encode", "a.txt", "-o", "out", "--model="],
        ["reconstruct", "a.parquet", "-o", ""],
        ["highlight", "a text", "--html", ""],
        ["index", "", "-o", "out"],
        ["index", "add", "index", ""],
        ["search", "", "query"],
        ["serve", "--api-key", ""],
        ["train", "search", "-o", ""],
        ["trim", "search", "-o", "out", "--texts", ""],
        ["lm", "generate", "lm", "--prompt", ""],
        ["data", "reranking", "", "-o", "out"],
        ["evaluate", "probing", "search", "", "-o", "out"],
        ["report", ""],
        ["reproduce", "small", "-o", ""],
    ],
)
def test_an_empty_argument_is_not_the_current_folder(run, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("A text.")
    refused = run(*arguments)
    assert refused.returncode == 2
    assert refused.stderr.endswith("is empty: is a variable unset?\n")
    assert refused.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
