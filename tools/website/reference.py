"""The reference pages of the site, from docstrings, the command line, the HTTP API and the recipes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import textnuggets

PACKAGE = Path(textnuggets.__file__).parent
PYTHON = """\
# Python

Everything in this first part is imported from `textnuggets` itself.

{public}

## For other libraries

[How to use them](../integrations.md).

{integrations}
"""
INTEGRATIONS = (
    "haystack.NuggetRetriever",
    "langchain.NuggetRetriever",
    "llama_index.NuggetRetriever",
    "nugget_head.NuggetHead",
    "nugget_module.NuggetModule",
)


def python_page() -> str:
    """Return the page of the public names, which mkdocstrings fills."""
    public = (f"::: {home}.{name}" for name, home in textnuggets._HOMES.items())
    integrations = (_block(f"textnuggets.integrations.{name}") for name in INTEGRATIONS)
    return PYTHON.format(public="\n\n".join(public), integrations="\n\n".join(integrations))


def _block(name: str) -> str:
    """Return the directive for a name that is not public in `textnuggets`, under its full path."""
    return f"::: {name}\n    options:\n      heading_level: 3\n      show_root_full_path: true"


def command_line_page() -> str:
    """Return the page of all commands with their arguments and options."""
    import typer.main

    from textnuggets.cli import app

    root = typer.main.get_command(app)
    intro = "`textnuggets COMMAND --help` shows the same. Errors in the input end a command with exit code 2."
    return "\n\n".join(["# Command line", root.help or "", intro, *_commands("textnuggets", root)]) + "\n"


def _commands(name: str, command: Any) -> Iterator[str]:
    """Yield the sections of the commands below a group."""
    for word, inner in command.commands.items():
        below = hasattr(inner, "commands")
        yield f"{'##' if name == 'textnuggets' else '###'} {name} {word}"
        yield _prose(inner.help or "")
        if below:
            yield from _commands(f"{name} {word}", inner)
        else:
            yield _usage(f"{name} {word}", inner)
            yield _options(inner)


def _usage(name: str, command: Any) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    return "```text\n" + " ".join([name, *command.collect_usage_pieces(context)]) + "\n```"


def _options(command: Any) -> str:
    """Return the table of a command's arguments and options, with the texts of `--help`."""
    context = command.make_context(command.name, [], resilient_parsing=True)
    rows = ["| argument or option | meaning |", "|---|---|"]
    for given in command.params:
        if (record := given.get_help_record(context)) is not None:  # None if it is hidden
            rows.append(f"| `{record[0]}` | {_cell(record[1])} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return _prose(" ".join(text.split())).replace("|", "\\|")


def _prose(text: str) -> str:
    """Return plain text as Markdown: nothing in it is markup."""
    return re.sub(r"([*_\[\]])", r"\\\1", escape(text, quote=False))


def http_page() -> str:
    """Return the page of the HTTP API, from the OpenAPI description of the server."""
    from fastapi import FastAPI

    from textnuggets.serve.app import ROUTERS
    from textnuggets.serve.reference import reference_body

    app = FastAPI()  # `create_app` would need a model
    for router in ROUTERS:
        app.include_router(router)
    api = app.openapi()
    body = re.sub(r"<h2>(?:<code>)?(.*?)(?:</code>)?</h2>", r"\n\n## \1\n\n", reference_body(api))
    body = re.sub(r"`([^`<]+)`", r"<code>\1</code>", body)
    body = re.sub(r'<h3 id="(\w+)">.*?</h3>', r"\n\n### \1 { #\1 }\n\n", body)
    intro = "[How to run a server](../serving.md). A running server has this page under `/docs`, and `/openapi.json` for programs."
    return f"# HTTP\n\n{intro}\n{body}\n"


def recipes_page() -> str:
    """Return the page of the recipes and plans of the package."""
    lines = [
        "# Recipes",
        "",
        "`textnuggets train NAME` runs one of these recipes; [every key](../training.md#every-key) is described with",
        "[how to train](../training.md). `textnuggets reproduce NAME` runs a plan, which is a list of steps.",
        "",
    ]
    for folder, kind in (("recipes", "Recipe"), ("plans", "Plan")):
        for path in sorted((PACKAGE / folder).glob("*.toml")):
            text = path.read_text(encoding="utf-8").rstrip()
            lines += [f"## {kind} {path.stem}", "", "```toml", text, "```", ""]
    return "\n".join(lines)
