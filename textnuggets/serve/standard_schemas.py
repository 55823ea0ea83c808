"""Schemas in the formats of OpenAI (embeddings, models), Cohere and Jina (reranking)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from textnuggets.serve.schemas import SAMPLE, Chosen, Filled, Flag, QueriedRatio, Ratio, Request, Text, Warned


class EmbeddingsRequest(Request):
    """Texts to embed: OpenAI's request, with a ratio."""

    input: Text | Annotated[list[Text], Field(min_length=1)] = Field(
        description="One text or a list of texts.", examples=[SAMPLE]
    )
    model: Chosen = None
    encoding_format: Literal["float", "base64"] = "float"
    ratio: Ratio = None
    spans: Flag = Field(False, description="Whether to return the character span of each vector's token.")
    scores: Flag = Field(False, description="Whether to return the score of each vector.")
    user: str | None = Field(None, description="Ignored.")


class Embedding(BaseModel):
    """The vectors of one text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[list[float]] | str = Field(
        description="One list per vector; as base64, the little-endian float32 values of all vectors, row by row."
    )
    shape: tuple[int, int] = Field(description="Number of vectors, and their dimensions.")
    spans: list[tuple[int, int]] | None = None
    scores: list[float] | None = None


class Usage(BaseModel):
    """Number of encoded tokens."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    """Vectors of texts: OpenAI's response."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class RerankDocument(Request):
    """Document as an object."""

    text: Text


class RerankRequest(Request):
    """Query and documents to rank: the request of Cohere and Jina."""

    query: Filled = Field(examples=["Where did the water go?"])
    documents: list[Text | RerankDocument] = Field(
        min_length=1, examples=[[SAMPLE, "The cat sat on the mat."]]
    )
    model: Chosen = None
    top_n: int | None = Field(None, ge=1, description="Maximum number of results; all by default.")
    return_documents: Flag = False
    ratio: QueriedRatio = None


class RerankResult(BaseModel):
    """Score of a document, and its index in the request."""

    index: int
    relevance_score: float
    document: RerankDocument | None = None


class RerankAnswer(BaseModel):
    """Ranked documents, best first."""

    id: str
    model: str
    results: list[RerankResult]
    usage: Usage
    warning: Warned = None


class ModelOut(BaseModel):
    """A model in OpenAI's format, with its capabilities."""

    id: str
    object: Literal["model"] = "model"
    owned_by: Literal["textnuggets"] = "textnuggets"
    dimensions: int
    ratio: float
    query_ratio: float | None = Field(
        None, description="Compression ratio of queries; absent if it equals `ratio`."
    )
    compares: bool = Field(description="Whether it was trained for comparing texts.")
    decodes: bool = Field(description="Whether it can decode vectors into text.")
    searches: bool = Field(description="Whether the index was built with it.")


class ModelsAnswer(BaseModel):
    """Served models: OpenAI's response."""

    object: Literal["list"] = "list"
    data: list[ModelOut]
