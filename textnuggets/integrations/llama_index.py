"""NuggetRetriever: an index as a retriever of LlamaIndex."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textnuggets.errors import MissingExtraError
from textnuggets.integrations.sources import Place, find_sources, open_index

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import (
        NodeRelationship,
        NodeWithScore,
        QueryBundle,
        RelatedNodeInfo,
        TextNode,
    )
except ImportError as error:
    raise MissingExtraError("llama-index-core", "llama-index", "a retriever for LlamaIndex") from error

OWN = ["document_id", "score", "spans"]


class NuggetRetriever(BaseRetriever):
    """Retriever of the documents of an index, or of their passages, as nodes with scores.

    Args:
        index: `NuggetIndex`, or its folder or address.
        k: Number of documents at most.
        filter: Metadata that documents must have.
        min_score: Score that documents must have at least.
        passages: Whether to return the passages that match best, up to three of each document, instead of documents.
    """

    def __init__(
        self,
        index: Place,
        k: int = 10,
        filter: Mapping[str, Any] | None = None,
        min_score: float | None = None,
        passages: bool = False,
    ) -> None:
        super().__init__()
        self.index = open_index(index)
        self.k, self.filter, self.min_score, self.passages = k, filter, min_score, passages

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        sources = find_sources(
            self.index, query_bundle.query_str, self.k, self.filter, self.min_score, self.passages
        )
        found = []
        for source in sources:
            # A language model is shown the user's metadata, but not the numbers.
            node = TextNode(
                id_=source.id,
                text=source.text,
                metadata=source.metadata,
                excluded_llm_metadata_keys=OWN,
                excluded_embed_metadata_keys=OWN,
            )
            document = RelatedNodeInfo(node_id=source.metadata["document_id"])
            node.relationships[NodeRelationship.SOURCE] = document
            found.append(NodeWithScore(node=node, score=source.score))
        return found
