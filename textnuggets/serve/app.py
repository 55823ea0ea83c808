"""The HTTP API: `create_app` makes it of a model and perhaps an index."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from textnuggets import __version__
from textnuggets.errors import ConfigError, InputError, MissingExtraError

try:
    from fastapi import FastAPI
    from fastapi.middleware.cors import CORSMiddleware
    from fastapi.responses import HTMLResponse
except ImportError as error:
    raise MissingExtraError(error.name or "fastapi", "serve", "the server") from error

from textnuggets.model.modeling import NuggetModel
from textnuggets.search.index import NuggetIndex
from textnuggets.serve import answers
from textnuggets.serve import schemas as s
from textnuggets.serve.batching import Busy, Worker
from textnuggets.serve.gate import Limits, Refused, add_errors, add_gate
from textnuggets.text.documents import is_unicode

PAGE = Path(__file__).parent / "page.html"
WRONG: dict[int | str, dict[str, Any]] = {
    code: {"model": s.ErrorAnswer} for code in (400, 401, 404, 411, 413, 422, 500, 503, 504)
}
Answer = TypeVar("Answer")


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
    add_errors(app)
    add_gate(app, limits, api_key, worker)
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
        asked = model.config.query_ratio or request.ratio
        both = asyncio.gather(worker.encode([request.query], asked), worker.encode(texts, request.ratio))
        (query,), found = await timed(both)
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
