"""NuggetRetriever: an index as a retriever component of Haystack."""

from __future__ import annotations

from typing import Any

from textnuggets.errors import InputError, MissingExtraError
from textnuggets.integrations.sources import Place, find_sources, open_index

try:
    from haystack import Document, component, default_from_dict, default_to_dict
except ImportError as error:
    raise MissingExtraError("haystack-ai", "haystack", "a retriever for Haystack") from error


@component
class NuggetRetriever:
    """Component that retrieves the documents of an index, or their passages.

    Args:
        index: `NuggetIndex`, or its folder or address, which is opened for the first query.
        top_k: Number of documents at most.
        filters: Filters of Haystack: comparisons with `==`, also joined by `AND`.
        min_score: Score that documents must have at least.
        passages: Whether to return the passages that match best, up to three of each document, instead of documents.
    """

    def __init__(
        self,
        index: Place,
        top_k: int = 10,
        filters: dict[str, Any] | None = None,
        min_score: float | None = None,
        passages: bool = False,
    ) -> None:
        self.index = index
        self.top_k, self.filters, self.min_score, self.passages = top_k, filters, min_score, passages
        _to_metadata(filters)

    def warm_up(self) -> None:
        """Open the index."""
        self.index = open_index(self.index)

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the documents for a query; filters and number replace those of the component."""
        self.warm_up()
        metadata = _to_metadata(self.filters if filters is None else filters)
        k = self.top_k if top_k is None else top_k
        sources = find_sources(open_index(self.index), query, k, metadata, self.min_score, self.passages)
        return {
            "documents": [Document(s.id, content=s.text, meta=s.metadata, score=s.score) for s in sources]
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, with the folder or address of the index."""
        place = getattr(self.index, "place", self.index)
        names = ("top_k", "filters", "min_score", "passages")
        return default_to_dict(self, index=str(place), **{name: getattr(self, name) for name in names})

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        """Return the component with the settings of `to_dict`."""
        return default_from_dict(cls, data)


def _to_metadata(filters: dict[str, Any] | None) -> dict[str, list[Any]]:
    """Return filters of Haystack as the metadata that documents must have; raise InputError for other comparisons."""
    if not filters:
        return {}
    operator = filters.get("operator")
    if operator == "AND":
        joined: dict[str, list[Any]] = {}
        for condition in filters.get("conditions", []):
            for key, values in _to_metadata(condition).items():
                joined.setdefault(key, []).extend(values)
        return joined
    if operator != "==" or "field" not in filters:
        raise InputError(
            f"the filter {filters!r} cannot be used: an index compares with '==', joined by 'AND'."
        )
    return {str(filters["field"]).removeprefix("meta."): [filters.get("value")]}
