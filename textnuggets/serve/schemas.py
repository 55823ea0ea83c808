"""What requests may hold and answers do; FastAPI makes the OpenAPI description of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SAMPLE = "Rain fell all night; in the morning, the river had risen over the bridge."

Text = Annotated[str, Field(strict=True)]
Filled = Annotated[str, Field(strict=True, min_length=1)]
Whole = Annotated[int, Field(ge=0, le=2**31 - 1)]  # positions in texts
Real = Annotated[float, Field(ge=-3e38, le=3e38, allow_inf_nan=False)]  # what float32 can hold
Flag = Annotated[bool, Field(strict=True)]
Ratio = Annotated[
    float | None,
    Field(
        strict=True, gt=0, le=1, description="Compression ratio; the model's own by default.", examples=[0.1]
    ),
]

Chosen = Annotated[
    str | None,
    Field(
        description="One of GET /v1/models; by default the first that can do what is asked.",
        examples=["search"],
    ),
]
QueriedRatio = Annotated[
    float | None,
    Field(
        strict=True,
        gt=0,
        le=1,
        description="Compression ratio of documents, and of the query if the model has no query ratio; the model's own by "
        "default.",
        examples=[0.1],
    ),
]
Warned = Annotated[
    str | None,
    Field(description="Given if the model is not made for comparing texts; left out otherwise."),
]


class Request(BaseModel):
    """A request: what is not known in it is refused."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class EmbeddingsRequest(Request):
    """As OpenAI's, with a ratio."""

    input: Text | Annotated[list[Text], Field(min_length=1)] = Field(
        description="A text, or several.", examples=[SAMPLE]
    )
    model: Chosen = None
    encoding_format: Literal["float", "base64"] = "float"
    ratio: Ratio = None
    spans: Flag = Field(False, description="Whether to tell the characters each vector stands for.")
    scores: Flag = Field(False, description="Whether to tell what the scorer gave each vector.")
    user: str | None = Field(None, description="Ignored.")


class Embedding(BaseModel):
    """The vectors of one text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[list[float]] | str = Field(
        description="One list for each vector; as base64, little-endian float32 of all of them, row by row."
    )
    shape: tuple[int, int] = Field(description="How many vectors, and their dimensions.")
    spans: list[tuple[int, int]] | None = None
    scores: list[float] | None = None


class Usage(BaseModel):
    """Tokens that were encoded."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    """As OpenAI's."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class RerankDocument(Request):
    """A document as an object."""

    text: Text


class RerankRequest(Request):
    """As Cohere's and Jina's."""

    query: Filled = Field(examples=["Where did the water go?"])
    documents: list[Text | RerankDocument] = Field(
        min_length=1, examples=[[SAMPLE, "The cat sat on the mat."]]
    )
    model: Chosen = None
    top_n: int | None = Field(None, ge=1, description="How many results; all by default.")
    return_documents: Flag = False
    ratio: QueriedRatio = None


class RerankResult(BaseModel):
    """A document's place."""

    index: int
    relevance_score: float
    document: RerankDocument | None = None


class RerankAnswer(BaseModel):
    """Best first."""

    id: str
    model: str
    results: list[RerankResult]
    usage: Usage
    warning: Warned = None


class NuggetsRequest(Request):
    """Texts to turn into nuggets."""

    texts: list[Text] = Field(min_length=1, examples=[[SAMPLE]])
    model: Chosen = None
    ratio: Ratio = None
    vectors: Flag = Field(True, description="Whether to return the vectors themselves.")
    pieces: Flag = Field(False, description="Whether to return every token with its score, for highlighting.")


class Nugget(BaseModel):
    """One vector and where it comes from."""

    token: str
    span: tuple[Whole, Whole]
    segment: tuple[Whole, Whole]
    score: Real
    position: Whole
    vector: list[Real] | None = None


class PieceOut(BaseModel):
    """A stretch of the text."""

    text: str
    score: float | None = None
    shade: float
    is_nugget: bool
    is_special: bool


class NuggetsOut(BaseModel):
    """A text as nuggets; with vectors, it can be given to /reconstruct as it is."""

    nuggets: list[Nugget]
    windows: list[tuple[Whole, Whole, Whole, Whole]]
    token_count: Whole
    pieces: list[PieceOut] | None = None


class NuggetsAnswer(BaseModel):
    """In the order of the texts."""

    model: str
    texts: list[NuggetsOut]


class ReconstructRequest(Request):
    """Either texts, which are compressed and decoded again, or nuggets from /nuggets with their vectors."""

    texts: list[Text] | None = Field(None, min_length=1, examples=[[SAMPLE]])
    nuggets: list[NuggetsOut] | None = Field(None, min_length=1)
    model: Chosen = None
    ratio: Ratio = None
    num_beams: int = Field(1, ge=1, le=8)
    probabilities: Flag = Field(False, description="Whether to return how sure the model is of every word.")


class Word(BaseModel):
    """A word of a decoded text."""

    start: int = Field(description="Its first character in the text.")
    end: int
    probability: float = Field(description="How sure the model is of it, from 0 to 1.")


class Reconstruction(BaseModel):
    """A decoded text."""

    text: str
    bleu: float | None = Field(None, description="Against the text that was given, from 0 to 100.")
    vectors: int
    words: list[Word] | None = Field(None, description="Given if the request asks for `probabilities`.")


class ReconstructAnswer(BaseModel):
    """In the order of the request."""

    model: str
    texts: list[Reconstruction]


class SimilarityRequest(Request):
    """Two texts."""

    query: Filled = Field(examples=["Where did the water go?"])
    document: Filled = Field(examples=[SAMPLE])
    model: Chosen = None
    ratio: QueriedRatio = None


class SimilarityAnswer(BaseModel):
    """Mean-MaxSim and what it is made of."""

    model: str
    score: float
    matrix: list[list[float]] = Field(description="Cosines of query nuggets (rows) with document nuggets.")
    winners: list[int] = Field(description="For each query nugget, the document nugget that answers it best.")
    query: NuggetsOut
    document: NuggetsOut
    bm25: float | None = Field(
        None,
        description="BM25 of the document among both texts' sentences; left out if bm25s is not installed.",
    )
    shared_words: list[str]
    warning: Warned = None


class GainRequest(Request):
    """What does a nugget know of its text?"""

    text: Text = Field(examples=[SAMPLE])
    model: Chosen = None
    ratio: Ratio = None
    nugget: int = Field(ge=0, description="Which one, from 0.", examples=[0])


class GainAnswer(BaseModel):
    """The probability gain of every token when this nugget alone is exposed."""

    gain: list[float]
    tokens: list[str]


class SearchRequest(Request):
    """A query for the index."""

    query: Filled = Field(examples=["river"])
    k: int = Field(10, ge=1, le=100)
    model: Annotated[str | None, Field(description="The model of the index, or none.")] = None
    filter: dict[str, str | int | float | bool] | None = None


class SearchMatch(BaseModel):
    """What answered one nugget of the query."""

    query: tuple[int, int]
    document: tuple[int, int]
    score: float


class SearchHit(BaseModel):
    """A document that was found."""

    id: str
    score: float
    matches: list[SearchMatch]
    metadata: dict[str, Any]
    text: str | None
    regenerated: bool


class SearchAnswer(BaseModel):
    """Best first."""

    hits: list[SearchHit]
    warning: Warned = None


class ModelOut(BaseModel):
    """A model, as OpenAI describes one, and what it can do."""

    id: str
    object: Literal["model"] = "model"
    owned_by: Literal["textnuggets"] = "textnuggets"
    dimensions: int
    ratio: float
    query_ratio: float | None = Field(None, description="The ratio of queries; left out if it is `ratio`.")
    compares: bool = Field(description="Whether its vectors are made to be compared.")
    decodes: bool = Field(description="Whether it turns vectors back into text.")
    searches: bool = Field(description="Whether the index was built with it.")


class ModelsAnswer(BaseModel):
    """As OpenAI's."""

    object: Literal["list"] = "list"
    data: list[ModelOut]


class Health(BaseModel):
    """What is served; `model` to `dimensions` describe the first model."""

    status: Literal["ok"] = "ok"
    model: str
    decodes: bool
    ratio: float
    dimensions: int
    models: list[str]
    documents: int | None = Field(None, description="In the index, if one is served.")
    version: str


class ErrorDetail(BaseModel):
    """What was wrong."""

    message: str
    type: str
    param: str | None = Field(None, description="The field of the request it is about.")


class ErrorAnswer(BaseModel):
    """Every answer that is not a success."""

    error: ErrorDetail
