"""NuggetRetriever: an index as a retriever of LangChain."""

from __future__ import annotations

from typing import Any

from textnuggets.errors import MissingExtraError
from textnuggets.integrations.sources import find_sources, open_index

try:
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import field_validator
except ImportError as error:
    raise MissingExtraError("langchain-core", "langchain", "a retriever for LangChain") from error


class NuggetRetriever(BaseRetriever):
    """Retriever of the documents of an index, or of their passages; see `find_sources` for their metadata."""

    index: Any
    """`NuggetIndex`, or its folder or address."""
    k: int = 10
    """Number of documents at most."""
    filter: dict[str, Any] | None = None
    """Metadata that documents must have."""
    min_score: float | None = None
    """Score that documents must have at least."""
    passages: bool = False
    """Whether to return the passages that match best, up to three of each document, instead of documents."""

    @field_validator("index")
    @classmethod
    def _open(cls, index: Any) -> Any:
        return open_index(index)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: Any,  # noqa: ARG002
        **overrides: Any,
    ) -> list[Document]:
        """Return the documents for a query; `invoke(query, k=3)` overrides the settings."""
        settings = {name: getattr(self, name) for name in ("k", "filter", "min_score", "passages")}
        sources = find_sources(self.index, query, **{**settings, **overrides})
        return [
            Document(id=source.id, page_content=source.text, metadata=source.metadata) for source in sources
        ]
