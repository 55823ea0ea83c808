"""textnuggets mcp: let an assistant search an index, over the Model Context Protocol."""

from __future__ import annotations

from typing import Annotated

import typer


def mcp(
    index: Annotated[str, typer.Argument(help="Folder of the index, or http://host:6333/collection.")],
    model: Annotated[
        str | None, typer.Option("--model", help="New folder of the index's model, if it was moved.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="QDRANT_API_KEY", help="API key of a server.")
    ] = None,
) -> None:
    """Serve the search of an index over the Model Context Protocol, on standard input and output.

    Assistants start this command themselves; its tool `search` returns passages with their documents and characters.
    """
    from textnuggets.cli.options import load_any, quiet_transformers
    from textnuggets.integrations.mcp import make_server
    from textnuggets.search.index import NuggetIndex

    quiet_transformers()
    loaded = None if model is None else load_any(model)
    with NuggetIndex.open(index, loaded, api_key, read_only=True) as opened:
        _ = opened.model  # loaded before the first search
        make_server(opened).run("stdio")
