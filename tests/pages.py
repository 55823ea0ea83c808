"""The Markdown pages of the project: their blocks, and a way to run them."""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
import types
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import httpx

ROOT = Path(__file__).parent.parent
PAGES = {
    path.relative_to(ROOT).as_posix(): path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}
ADDRESS = "127.0.0.1:8000"
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
OUTPUT = "<!-- output -->"  # above a block that shows what the Python before it prints


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    code: str
    not_run: str | None
    """The reason why it is not run, from the comment above it."""
    is_output: bool = False


def read_blocks(name: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    blocks: list[Block] = []
    above, opened, inside = "", None, []
    for number, line in enumerate(PAGES[name].read_text(encoding="utf-8").splitlines(), start=1):
        if opened is None and line.startswith("```"):
            reason = NOT_RUN.fullmatch(above.strip())
            opened, inside = (number, line[3:].strip(), reason and reason[1], above.strip() == OUTPUT), []
        elif opened is not None and line == "```":
            start, language, why, is_output = opened
            blocks.append(
                Block(name, start, language, "".join(f"{text}\n" for text in inside), why, is_output)
            )
            opened = None
        elif opened is not None:
            inside.append(line)
        if line.strip():
            above = line
    assert opened is None, f"{name}: a block is not closed"
    return blocks


def read_commands(block: Block) -> list[tuple[list[str], list[str]]]:
    """Return the commands of a block, each with the lines that the page shows as its output.

    A block of `sh` has commands alone; in a transcript they begin with "$ " and output follows.
    """
    if block.language == "sh":
        return [(command, []) for command in split_commands(block.code)]
    lines = block.code.splitlines()
    commands: list[tuple[list[str], list[str]]] = []
    for line in lines:
        if line.startswith("$ "):
            commands.append((shlex.split(line[2:], comments=True), []))
        elif commands:
            commands[-1][1].append(line)
    return commands


def split_commands(code: str) -> list[list[str]]:
    """Return the commands of a script, which may continue over lines by a backslash or an open quote."""
    commands, pending = [], ""
    for line in code.splitlines():
        pending += line
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        try:
            commands.append(shlex.split(pending, comments=True))
            pending = ""
        except ValueError:  # a quote is open
            pending += "\n"
    assert not pending, f"a command does not end: {pending}"
    return [command for command in commands if command]


class Runner:
    """Runs the blocks of one page, in one namespace and the current folder.

    Args:
        run: Runs the command line in this process, as the fixture `run` does.
        shorten: Gives options to add to a command that would take too long here.
    """

    def __init__(self, run: Callable[..., Any], shorten: Callable[[list[str]], list[str]]) -> None:
        self.run, self.shorten = run, shorten
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.printed: list[str] = []
        """Output of each block of Python."""
        self.server: subprocess.Popen[str] | None = None
        self.address = ADDRESS

    def execute(self, block: Block) -> None:
        """Run a block; an error names its place."""
        place = f"{block.page}, line {block.line}"
        if block.language == "python":
            code = block.code.replace(ADDRESS, self.address)
            with redirect_stdout(io.StringIO()) as printed:
                exec(compile("\n" * block.line + code, PAGES[block.page], "exec"), self.names)
            self.printed.append(printed.getvalue())
            return
        if block.is_output:
            assert looks_alike(self.printed[-1], block.code), (
                f"{place} shows other output than\n{self.printed[-1]}"
            )
            return
        if block.language == "toml":
            tomllib.loads(block.code)
            Path("my-recipe.toml").write_text(block.code, encoding="utf-8")
            return
        for command, shown in read_commands(block):
            self.call(command, [line for line in shown if line.startswith("error: ")], place)

    def call(self, command: list[str], errors: list[str], place: str) -> None:
        """Run a command, which must end well, or with the errors that the page shows."""
        program, *arguments = command
        if command[:2] == ["textnuggets", "serve"]:
            self.serve(arguments)
        elif program == "textnuggets":
            done = self.run(*arguments, *self.shorten(arguments))
            told = f"{place}: {shlex.join(command)}\n{done.stdout}{done.stderr}"
            assert done.returncode == (2 if errors else 0), told
            assert [line for line in done.stderr.splitlines() if line.startswith("error: ")] == errors, told
        elif program == "make":
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            targets = [argument for argument in arguments if "=" not in argument]
            assert all(f"\n{target}:" in makefile for target in targets), place
        elif program == "pip":
            check_install(arguments, place)
        elif program == "curl":
            self.fetch(arguments, place)
        elif program in ("cat", "grep"):
            subprocess.run(
                shlex.join(command).replace("'|'", "|"), shell=True, check=False, capture_output=True
            )
        else:
            raise AssertionError(
                f"{place}: {program!r} is not run here; write <!-- not run: why --> above the block"
            )

    def serve(self, arguments: list[str]) -> None:
        """Start a server on a free port, in a process of its own.

        The first server of a page runs to its end; further ones do everything but listen.
        """
        if self.server is not None:
            with mock.patch("uvicorn.Server.run", lambda _, sockets: [socket.close() for socket in sockets]):
                done = self.run(*arguments, "--port", "0")
            assert done.returncode == 0, f"{shlex.join(arguments)}: {done.stderr}"
            return
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "textnuggets", *arguments, "--port", "0"]
        self.server = subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8", env=environment)
        assert self.server.stderr is not None
        told = []
        for line in self.server.stderr:
            told.append(line)
            if found := re.match(r"http://(\S+)", line):
                self.address = found[1]
                return
        raise AssertionError(f"{shlex.join(arguments)}: {''.join(told)}")

    def stop(self) -> None:
        """Stop the server, if there is one."""
        if self.server is not None:
            self.server.terminate()
            self.server.communicate(timeout=60)
            self.server = None

    def fetch(self, arguments: list[str], place: str) -> None:
        """Send what a line of curl would."""
        parser = argparse.ArgumentParser(exit_on_error=False)
        parser.add_argument("url")
        parser.add_argument("-s", action="store_true")
        parser.add_argument("-H", action="append", default=[])
        parser.add_argument("-d")
        parser.add_argument("-X")
        given = parser.parse_args(arguments)
        assert given.url.startswith(
            (f"http://{ADDRESS}", f"http://{ADDRESS.replace('127.0.0.1', 'localhost')}")
        ), place
        answer = httpx.request(
            given.X or ("GET" if given.d is None else "POST"),
            re.sub(r"//[^/]+", f"//{self.address}", given.url, count=1),
            headers=dict(header.split(": ", 1) for header in given.H),
            content=given.d,
            timeout=60,
        )
        assert answer.is_success, f"{place}: {answer.status_code} {answer.text}"


def looks_alike(printed: str, shown: str) -> bool:
    """Return whether two texts have the same words, and numbers that differ by 0.02 at most."""
    number = re.compile(r"-?\d+\.\d*")
    ours, theirs = ([float(found) for found in number.findall(text)] for text in (printed, shown))
    words = [re.sub(r"\s+", "", number.sub("#", text)) for text in (printed, shown)]
    return words[0] == words[1] and all(abs(a - b) < 0.021 for a, b in zip(ours, theirs, strict=True))


def check_install(arguments: list[str], place: str) -> None:
    """Assert that a line of pip names extras and folders that exist."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert arguments[0] == "install", place
    if arguments[1] == "-r":
        assert (ROOT / arguments[2]).is_file(), place
        return
    for argument in arguments[1:]:
        if argument.startswith("-"):
            continue
        name, _, wanted = argument.removesuffix("]").partition("[")
        assert name in ("textnuggets", "textnuggets-models") or (ROOT / name / "pyproject.toml").is_file(), (
            place
        )
        assert set(filter(None, wanted.split(","))) <= set(extras), f"{place}: {argument}"


def stand_in_for_openai() -> types.ModuleType:
    """A module with as much of OpenAI's client as the docs show; the package is not among our dependencies."""

    class OpenAI:
        def __init__(self, base_url: str, api_key: str) -> None:
            self.embeddings = self.models = self
            headers = {"Authorization": f"Bearer {api_key}"}
            self._client = lambda: httpx.Client(base_url=base_url, headers=headers, timeout=60)

        def create(self, **fields: object) -> types.SimpleNamespace:
            with self._client() as client:
                answer = client.post("/embeddings", json=fields).raise_for_status().json()
            data = [types.SimpleNamespace(**item) for item in answer["data"]]
            return types.SimpleNamespace(**{**answer, "data": data})

        def list(self) -> Iterator[types.SimpleNamespace]:
            with self._client() as client:
                answer = client.get("/models").raise_for_status().json()
            return iter([types.SimpleNamespace(**item) for item in answer["data"]])

    module = types.ModuleType("openai")
    module.OpenAI = OpenAI  # type: ignore[attr-defined]
    return module


def headings(name: str) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", PAGES[name].read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        repeated = sum(1 for other in found if re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", other))
        found.add(f"{anchor}-{repeated}" if anchor in found else anchor)
    return found


def links(name: str) -> list[str]:
    """Return the targets of the links and pictures of a page, without code."""
    text = re.sub(r"^```.*?^```", "", PAGES[name].read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"\]\(([^)\s]+)\)", text)
