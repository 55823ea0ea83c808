"""The HTTP API: `create_app` makes it of a model and perhaps an index."""

from __future__ import annotations

import asyncio
import hmac
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from textnuggets import __version__
from textnuggets.errors import ConfigError, IndexFileError, InputError, MissingExtraError, TextnuggetsError

try:
    from fastapi import FastAPI, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.middleware.cors import CORSMiddleware
    from fastapi.responses import HTMLResponse, JSONResponse
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
    from starlette.exceptions import HTTPException
except ImportError as error:
    raise MissingExtraError(error.name or "fastapi", "serve", "the server") from error

from textnuggets.model.modeling import NuggetModel
from textnuggets.search.index import NuggetIndex
from textnuggets.serve import answers
from textnuggets.serve import schemas as s
from textnuggets.serve.batching import Busy, Worker
from textnuggets.text.documents import is_unicode

PAGE = Path(__file__).parent / "page.html"
WRONG: dict[int | str, dict[str, Any]] = {
    code: {"model": s.ErrorAnswer} for code in (400, 401, 404, 411, 413, 422, 500, 503, 504)
}
NAMED = {
    field
    for kind in vars(s).values()
    if isinstance(kind, type)
    for field in getattr(kind, "model_fields", {})
}
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Limits:
    """What a request may cost."""

    body_bytes: int = 4_000_000
    texts: int = 256
    """In one request."""
    tokens: int = 65_536
    """In one request, all texts together."""
    seconds: float = 60.0
    """Until a request is given up."""
    waiting: int = 64
    """Requests that may wait; more get 503."""
    batch_seconds: float = 0.005
    """How long a request waits for others to share a batch with; 0 does not batch."""
    batch_tokens: int = 4096
    numbers: int = 8_000_000
    """In one answer: vectors times dimensions, or cosines."""


class Refused(Exception):  # noqa: N818  it is an answer more than an error
    """An answer other than success."""

    def __init__(
        self, status: int, message: str, param: str | None = None, kind: str = "invalid_request"
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.kind = status, param, kind


def create_app(
    model: NuggetModel,
    name: str = "default",
    index: NuggetIndex | None = None,
    limits: Limits | None = None,
    api_key: str | None = None,
    cors: Sequence[str] = (),
) -> FastAPI:
    """The application.

    Args:
        model: What encodes, and decodes if it can.
        name: What answers call it.
        index: What /search looks into.
        limits: What a request may cost.
        api_key: Asked for as `Authorization: Bearer ...`, except by the page, /health and /metrics.
        cors: Origins whose pages may ask.
    """
    limits = limits or Limits()
    if api_key == "":
        raise ConfigError("the API key is empty: give one, or none.")
    worker = Worker(model, limits.batch_seconds, limits.batch_tokens, limits.waiting)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        worker.close()
        if index is not None:
            index.close()

    app = FastAPI(
        title="textnuggets",
        version=__version__,
        description="Text as a few vectors that can be searched, and decoded back into the text.",
        lifespan=lifespan,
    )
    documents = None if index is None else len(index)  # it is not written to while it is served
    _add_errors(app)
    _add_gate(app, limits, api_key, worker)
    if cors:  # last, so that it is outermost: a page must be able to read what was refused, too
        app.add_middleware(CORSMiddleware, allow_origins=list(cors), allow_methods=["*"], allow_headers=["*"])

    async def timed(work: Awaitable[Answer]) -> Answer:
        """Give a request up when it takes too long."""
        try:
            return await asyncio.wait_for(work, limits.seconds)
        except TimeoutError as error:
            message = f"it took longer than {limits.seconds:g} seconds: send less at once."
            raise Refused(504, message, kind="timeout") from error
        except Busy as error:
            raise Refused(503, "too many requests are waiting: try again.", kind="busy") from error

    async def check(**fields: Sequence[str]) -> None:
        """Whether texts may be encoded at all; the first field that may not is named."""
        tokens = 0
        for field, texts in fields.items():
            if len(texts) > limits.texts:
                raise Refused(422, f"{field} holds {len(texts)} texts; {limits.texts} are allowed.", field)
            for place, text in enumerate(texts):
                if not text.isascii() and not is_unicode(text):
                    raise Refused(422, f"{field}[{place}] holds half a surrogate pair: it is no text.", field)
            counted = await asyncio.to_thread(model.tokenizer, list(texts), verbose=False)
            tokens += sum(map(len, counted.input_ids))
            if tokens > limits.tokens:
                raise Refused(413, f"{field} brings {tokens} tokens; {limits.tokens} are allowed.", field)

    def check_answer(vectors: int, field: str) -> None:
        if vectors > limits.numbers:
            raise Refused(413, f"the answer would hold {vectors} numbers; lower the ratio.", field)

    @app.post("/v1/embeddings", response_model_exclude_none=True, responses=WRONG)
    async def embeddings(request: s.EmbeddingsRequest) -> s.EmbeddingsAnswer:
        """The vectors of texts, in OpenAI's shape; `embedding` is a list of vectors."""
        texts = [request.input] if isinstance(request.input, str) else request.input
        await check(input=texts)
        found = await timed(worker.encode(texts, request.ratio))
        check_answer(sum(item.vectors.size for item in found), "input")
        return await asyncio.to_thread(answers.embeddings, found, request, name)

    @app.post("/v1/rerank", response_model_exclude_none=True, responses=WRONG)
    async def rerank(request: s.RerankRequest) -> s.RerankAnswer:
        """Documents by how well they answer a query (mean-MaxSim), in the shape Cohere and Jina share."""
        texts = [item if isinstance(item, str) else item.text for item in request.documents]
        if not request.query.strip():
            raise Refused(422, "query is empty: there is nothing to rank by.", "query")
        await check(query=[request.query], documents=texts)
        query, *found = await timed(worker.encode([request.query, *texts], request.ratio))
        check_answer(len(query) * max(map(len, found)), "documents")
        answer_id = uuid.uuid4().hex
        return await asyncio.to_thread(answers.rerank, query, found, texts, request, name, answer_id)

    @app.post("/nuggets", response_model_exclude_none=True, responses=WRONG)
    async def nuggets(request: s.NuggetsRequest) -> s.NuggetsAnswer:
        """Texts as nuggets: vectors, tokens, spans, scores; with `pieces` every token, for highlighting."""
        await check(texts=request.texts)
        if request.pieces:
            found, pieces = await timed(
                worker.run(lambda: answers.with_pieces(model, request.texts, request.ratio))
            )
        else:
            found, pieces = await timed(worker.encode(request.texts, request.ratio)), None
        if request.vectors:
            check_answer(sum(item.vectors.size for item in found), "texts")
        out = await asyncio.to_thread(lambda: [answers.nuggets(item, request.vectors) for item in found])
        if pieces is not None:
            out = [item.model_copy(update={"pieces": own}) for item, own in zip(out, pieces, strict=True)]
        return s.NuggetsAnswer(texts=out)

    @app.post("/reconstruct", response_model_exclude_none=True, responses=WRONG)
    async def reconstruct(request: s.ReconstructRequest) -> s.ReconstructAnswer:
        """Decode nuggets, or compress texts and decode them again."""
        if not model.view.family.decodes:
            raise Refused(422, f"the model {name!r} has no decoder.", None)
        if (request.texts is None) == (request.nuggets is None):
            raise Refused(422, "give one of texts and nuggets.", "texts")
        if request.texts is not None:
            await check(texts=request.texts)
        else:
            assert request.nuggets is not None
            if len(request.nuggets) > limits.texts:
                raise Refused(
                    422, f"nuggets holds {len(request.nuggets)}; {limits.texts} are allowed.", "nuggets"
                )
        try:
            return await timed(worker.run(lambda: answers.reconstruct(model, request, limits.tokens)))
        except InputError as error:
            raise Refused(422, str(error), "nuggets" if request.texts is None else "texts") from error

    @app.post("/similarity", responses=WRONG)
    async def similarity(request: s.SimilarityRequest) -> s.SimilarityAnswer:
        """Mean-MaxSim of two texts, every cosine, and which nugget answered which."""
        for field in ("query", "document"):
            if not getattr(request, field).strip():
                raise Refused(422, f"{field} is empty.", field)
        await check(query=[request.query], document=[request.document])
        query, document = await timed(worker.encode([request.query, request.document], request.ratio))
        check_answer(len(query) * len(document) * 8, "document")
        return await asyncio.to_thread(answers.similarity, query, document, request)

    @app.post("/gain", responses=WRONG)
    async def gain(request: s.GainRequest) -> s.GainAnswer:
        """What one nugget knows: the probability gain of every token of its window when it alone is exposed."""
        if not model.view.family.decodes:
            raise Refused(422, f"the model {name!r} has no decoder.", None)
        await check(text=[request.text])
        found = await timed(worker.run(lambda: answers.gain(model, request)))
        if found is None:
            raise Refused(422, f"nugget {request.nugget} is not there: the text has fewer.", "nugget")
        return found

    @app.post("/search", responses=WRONG)
    async def search(request: s.SearchRequest) -> s.SearchAnswer:
        """Documents of the index that answer a query, with the stretches that do."""
        if index is None:
            raise Refused(404, "no index is served: start with --index.", None)
        if not request.query.strip():
            raise Refused(422, "query is empty: there is nothing to search for.", "query")
        await check(query=[request.query])
        for item in (request.filter or {}).items():
            if not all(is_unicode(str(part)) for part in item):
                raise Refused(422, "filter holds half a surrogate pair: it is no text.", "filter")
        hits = await timed(worker.run(lambda: index.search(request.query, request.k, request.filter)))
        return answers.hits(hits)

    @app.get("/health", response_model_exclude_none=True)
    async def health() -> s.Health:
        """Whether it is up, and what it serves."""
        return s.Health(
            model=name,
            decodes=model.view.family.decodes,
            ratio=model.config.ratio,
            dimensions=model.value.out_features,
            documents=documents,
            version=__version__,
        )

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def page() -> str:
        return PAGE.read_text(encoding="utf-8")

    return app


def _error(status: int, message: str, kind: str, param: str | None = None) -> JSONResponse:
    content = {"error": {"message": message, "type": kind, "param": param}}
    headers = {"Retry-After": "1"} if status == 503 else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(content, status, headers)


def _add_errors(app: FastAPI) -> None:
    """Every answer that is no success has the same shape, and names the field it is about."""

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        return _error(error.status, str(error), error.kind, error.param)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        # The field, and places in lists; of unions pydantic also names the branch it tried.
        place = [part for part in first["loc"] if part != "body"] if first["type"] != "json_invalid" else []
        place = [part for i, part in enumerate(place) if not i or isinstance(part, int) or part in NAMED]
        param = ".".join(map(str, place)) or None
        return _error(422, f"{param or 'body'}: {first['msg']}", "invalid_request", param)

    @app.exception_handler(TextnuggetsError)
    async def ours(_: Request, error: TextnuggetsError) -> Response:
        status = 503 if isinstance(error, IndexFileError) else 422
        return _error(status, str(error), "invalid_request" if status == 422 else "index")

    @app.exception_handler(Exception)
    async def unforeseen(_: Request, error: Exception) -> Response:
        return _error(500, f"an error of the server's own ({type(error).__name__}).", "server")

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        response = _error(error.status_code, str(error.detail), "invalid_request")
        response.headers.update(error.headers or {})
        return response


def _add_gate(app: FastAPI, limits: Limits, api_key: str | None, worker: Worker) -> None:
    """Before a request is read: its key and its size. After: how long it took."""
    registry = CollectorRegistry()
    requests = Counter("textnuggets_requests", "Requests answered.", ["path", "status"], registry=registry)
    seconds = Histogram("textnuggets_request_seconds", "Time to answer.", ["path"], registry=registry)
    pending = Gauge("textnuggets_pending", "Requests accepted and not answered.", registry=registry)
    batches = Gauge("textnuggets_batches", "Batches encoded so far.", registry=registry)
    batched = Gauge("textnuggets_batched_requests", "Requests encoded in them.", registry=registry)
    open_paths = {"/", "/health", "/metrics", "/openapi.json", "/docs"}

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        pending.set(worker.pending)
        batches.set(worker.batches)
        batched.set(worker.batched)
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    known = {"/metrics"}

    @app.middleware("http")
    async def gate(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        if not known - {"/metrics"}:
            known.update(route.path for route in app.routes if hasattr(route, "path"))
        path, started = request.scope["path"], time.monotonic()
        label = path if path in known else "other"
        try:
            response = await _admit(request, call)
        except BaseException:
            requests.labels(label, "500").inc()
            raise
        requests.labels(label, str(response.status_code)).inc()
        seconds.labels(label).observe(time.monotonic() - started)
        return response

    async def _admit(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        if api_key is not None and request.scope["path"] not in open_paths and request.method != "OPTIONS":
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode("latin-1", "replace"), api_key.encode()):
                return _error(
                    401, "the API key is missing or wrong: Authorization: Bearer KEY.", "unauthorized"
                )
        if request.method == "POST":
            try:
                size = int(request.headers.get("content-length", ""))
            except ValueError:
                size = -1
            # Of both, the length would be ignored and the body could be of any size.
            if size < 0 or "transfer-encoding" in request.headers:
                return _error(411, "Content-Length is needed, and no Transfer-Encoding.", "invalid_request")
            if size > limits.body_bytes:
                return _error(
                    413, f"the body has {size} bytes; {limits.body_bytes} are allowed.", "invalid_request"
                )
        return await call(request)
