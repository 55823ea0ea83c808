"""A server of the Model Context Protocol with which an assistant searches an index and cites its sources."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from textnuggets import __version__
from textnuggets.errors import MissingExtraError, TextnuggetsError
from textnuggets.search.index import NuggetIndex

try:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import ToolAnnotations
except ImportError as error:  # missing, or a version before 2
    raise MissingExtraError("mcp>=2", "mcp", "a server of the Model Context Protocol") from error

MOST = 50  # documents of a search
INSTRUCTIONS = "Search a collection of documents. Base answers on the passages that are found, and cite them by document id and characters."


class CitedPassage(BaseModel):
    """Consecutive whole sentences of a document."""

    text: str | None = Field(description="None if the index stores no texts.")
    start: int = Field(description="First character in the document.")
    end: int
    score: float = Field(description="How well the passage matches, from -1 to 1.")


class CitedDocument(BaseModel):
    """A document with the passages that match a query best."""

    id: str
    score: float
    metadata: dict[str, Any]
    passages: list[CitedPassage]


def make_server(index: NuggetIndex) -> MCPServer[Any]:
    """Return a server with one tool, `search`; run it with `server.run("stdio")`."""
    server: MCPServer[Any] = MCPServer(
        "textnuggets", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING"
    )

    @server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
    def search(query: str, k: int = 5, filter: dict[str, Any] | None = None) -> list[CitedDocument]:
        """Find the documents that match a question or description best, with the passages that match.

        Args:
            query: A question, or a description of what to find, in natural language.
            k: Number of documents at most.
            filter: Metadata that documents must have, such as {"year": 1871}.
        """
        try:
            hits = index.search(query, min(k, MOST), filter, full=False)
        except TextnuggetsError as error:
            raise ToolError(str(error)) from error
        return [
            CitedDocument(
                id=hit.id,
                score=hit.score,
                metadata=hit.metadata,
                passages=[
                    CitedPassage(text=text, start=span[0], end=span[1], score=score)
                    for span, score, text in hit.passages
                ],
            )
            for hit in hits
        ]

    return server
