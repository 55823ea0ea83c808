"""Schemas of requests and responses, from which FastAPI generates the OpenAPI description.

Those in the formats of OpenAI, Cohere and Jina are in `standard_schemas`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SAMPLE = "Rain fell all night; in the morning, the river had risen over the bridge."

Text = Annotated[str, Field(strict=True)]
Filled = Annotated[str, Field(strict=True, min_length=1)]
Whole = Annotated[int, Field(ge=0, le=2**31 - 1)]  # positions in texts
Real = Annotated[float, Field(ge=-3e38, le=3e38, allow_inf_nan=False)]  # the range of float32
Flag = Annotated[bool, Field(strict=True)]
Ratio = Annotated[
    float | None,
    Field(strict=True, gt=0, le=1, description="Compression ratio; the model's by default.", examples=[0.1]),
]

Chosen = Annotated[
    str | None,
    Field(
        description="Name of a model from GET /v1/models; by default the first that supports the request.",
        examples=["search"],
    ),
]
QueriedRatio = Annotated[
    float | None,
    Field(
        strict=True,
        gt=0,
        le=1,
        description="Compression ratio of documents, and of the query if the model has no query ratio; the model's by "
        "default.",
        examples=[0.1],
    ),
]
Warned = Annotated[
    str | None,
    Field(description="Present if the model was not trained for comparing texts."),
]


class Request(BaseModel):
    """Base class of requests; unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class NuggetsRequest(Request):
    """Texts to encode."""

    texts: list[Text] = Field(min_length=1, examples=[[SAMPLE]])
    model: Chosen = None
    ratio: Ratio = None
    vectors: Flag = Field(True, description="Whether to return the vectors.")
    pieces: Flag = Field(
        False, description="Whether to return all tokens with their scores, for highlighting."
    )


class Nugget(BaseModel):
    """One vector, and the token it comes from."""

    token: str
    span: tuple[Whole, Whole]
    segment: tuple[Whole, Whole]
    score: Real
    position: Whole
    vector: list[Real] | None = None


class PieceOut(BaseModel):
    """A token, or text between tokens."""

    text: str
    score: float | None = None
    shade: float
    is_nugget: bool
    is_special: bool


class LayoutOut(BaseModel):
    """White space that the vectors do not represent, such as line breaks."""

    words: list[Whole] = Field(description="Number of words in each window.")
    runs: list[tuple[Whole, Text]] = Field(
        description="Number of words before each run of white space, and the run."
    )


class NuggetsOut(BaseModel):
    """Nuggets of a text; with vectors, they can be sent to /reconstruct unchanged."""

    nuggets: list[Nugget]
    windows: list[tuple[Whole, Whole, Whole, Whole]] = Field(
        description="Per window: number of nuggets, number of tokens, first and last character."
    )
    token_count: Whole
    layout: LayoutOut | None = Field(
        None, description="Present if a text has white space other than single spaces."
    )
    pieces: list[PieceOut] | None = None


class NuggetsAnswer(BaseModel):
    """Nuggets of each text, in the order of the request."""

    model: str
    texts: list[NuggetsOut]


class ReconstructRequest(Request):
    """Either texts to encode and decode again, or nuggets from /nuggets with their vectors."""

    texts: list[Text] | None = Field(None, min_length=1, examples=[[SAMPLE]])
    nuggets: list[NuggetsOut] | None = Field(None, min_length=1)
    model: Chosen = None
    ratio: Ratio = None
    num_beams: int = Field(1, ge=1, le=8)
    probabilities: Flag = Field(False, description="Whether to return the probability of each word.")


class Word(BaseModel):
    """Span and probability of a decoded word."""

    start: int = Field(description="Index of its first character.")
    end: int = Field(description="Index after its last character.")
    probability: float = Field(description="Probability of the word, from 0 to 1.")


class Reconstruction(BaseModel):
    """Decoded text."""

    text: str
    bleu: float | None = Field(None, description="BLEU with the original text, from 0 to 100.")
    vectors: int
    words: list[Word] | None = Field(None, description="Present if the request sets `probabilities`.")


class ReconstructAnswer(BaseModel):
    """Decoded texts, in the order of the request."""

    model: str
    texts: list[Reconstruction]
    warning: str | None = Field(
        None, description="Present if the texts have characters that the model cannot decode."
    )


class SimilarityRequest(Request):
    """Two texts to compare."""

    query: Filled = Field(examples=["Where did the water go?"])
    document: Filled = Field(examples=[SAMPLE])
    model: Chosen = None
    ratio: QueriedRatio = None


class SimilarityAnswer(BaseModel):
    """Mean-MaxSim and the cosines it is computed from."""

    model: str
    score: float
    matrix: list[list[float]] = Field(description="Cosines of query nuggets (rows) with document nuggets.")
    winners: list[int] = Field(
        description="Index of the best matching document nugget for each query nugget."
    )
    query: NuggetsOut
    document: NuggetsOut
    bm25: float | None = Field(
        None,
        description="BM25 of the document among the sentences of both texts; absent if bm25s is not installed.",
    )
    shared_words: list[str]
    warning: Warned = None


class GainRequest(Request):
    """A nugget to explain."""

    text: Text = Field(examples=[SAMPLE])
    model: Chosen = None
    ratio: Ratio = None
    nugget: int = Field(ge=0, description="Index of the nugget, from 0.", examples=[0])


class GainAnswer(BaseModel):
    """Probability gain of each token from this nugget alone."""

    gain: list[float]
    tokens: list[str]


class SearchRequest(Request):
    """A query for the index."""

    query: Filled = Field(examples=["river"])
    k: int = Field(10, ge=1, le=100)
    model: Annotated[str | None, Field(description="The model of the index; no other is accepted.")] = None
    filter: dict[str, str | int | float | bool] | None = None
    min_score: Annotated[float | None, Field(strict=True, ge=-1, le=1, allow_inf_nan=False)] = Field(
        None, description="Score that documents must have at least; any by default."
    )
    full: Flag = Field(False, description="Whether to return the whole text of each document.")
    hybrid: Flag = Field(False, description="Whether to rank by words, too, if the index has words.")


class SearchMatch(BaseModel):
    """Best match of one query nugget, as character spans."""

    query: tuple[int, int]
    document: tuple[int, int]
    score: float


class SearchPassage(BaseModel):
    """Consecutive whole sentences of a document."""

    span: tuple[int, int]
    score: float = Field(
        description="Mean over the query's nuggets of the highest cosine with a nugget of the passage."
    )
    text: str | None = Field(description="Null if the index stores no texts.")


class SearchHit(BaseModel):
    """A matching document."""

    id: str
    score: float
    matches: list[SearchMatch]
    passages: list[SearchPassage] = Field(description="Passages that match best, best first.")
    metadata: dict[str, Any]
    text: Annotated[
        str | None, Field(description="Present if the request sets `full`; null if it is not known.")
    ] = None
    regenerated: Annotated[
        bool, Field(description="Present if the request sets `full`: whether the vectors were decoded.")
    ] = False


class SearchAnswer(BaseModel):
    """Matching documents, best first."""

    hits: list[SearchHit]
    warning: Warned = None


class Health(BaseModel):
    """Status of the server; `model` to `dimensions` describe the first model."""

    status: Literal["ok"] = "ok"
    model: str
    decodes: bool
    ratio: float
    dimensions: int
    models: list[str]
    documents: int | None = Field(None, description="Number of documents in the index, if one is served.")
    version: str


class ErrorDetail(BaseModel):
    """Description of an error."""

    message: str
    type: str
    param: str | None = Field(None, description="Field of the request that caused the error.")


class ErrorAnswer(BaseModel):
    """Response to a request that failed."""

    error: ErrorDetail
