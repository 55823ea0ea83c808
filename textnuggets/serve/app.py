"""The HTTP API: `create_app` makes it from models and, if there is one, an index."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from textnuggets import __version__
from textnuggets.errors import ConfigError, MissingExtraError

try:
    from fastapi import FastAPI
    from fastapi.middleware.cors import CORSMiddleware
    from fastapi.routing import APIRoute
except ImportError as error:
    raise MissingExtraError(error.name or "fastapi", "serve", "the server") from error

from textnuggets.model.modeling import NuggetModel
from textnuggets.search.index import NuggetIndex
from textnuggets.serve.middleware import Limits, add_errors, add_gate
from textnuggets.serve.models import Models
from textnuggets.serve.routes import about, search, standard, texts
from textnuggets.serve.scheduler import Worker
from textnuggets.serve.service import Service

ROUTERS = (standard.router, texts.router, search.router, about.router)


def create_app(
    models: Mapping[str, NuggetModel],
    index: NuggetIndex | None = None,
    limits: Limits | None = None,
    api_key: str | None = None,
    cors: Sequence[str] = (),
) -> FastAPI:
    """Return the application.

    Args:
        models: Models by name; the order decides which one answers a request that names none.
        index: The index that /search looks into; its model is served, too, and is the default for comparing.
        limits: What a request may cost.
        api_key: The key a request needs as `Authorization: Bearer ...`; the page, /health and /metrics need none.
        cors: Origins whose pages may send requests.
    """
    limits = limits or Limits()
    if api_key == "":
        raise ConfigError("the API key is empty: give one, or none.")
    service = Service(
        models=Models(models, index),
        worker=Worker(limits.batch_seconds, limits.batch_tokens, limits.max_queue),
        limits=limits,
        index=index,
        documents=None if index is None else len(index),
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.worker.close()
        if index is not None:
            index.close()

    app = FastAPI(
        title="textnuggets",
        version=__version__,
        description="Text as a few vectors that can be index, and decoded back into the text.",
        lifespan=lifespan,
    )
    app.state.service = service
    add_errors(app)
    routes = (route for router in ROUTERS for route in router.routes)
    paths = {route.path for route in routes if isinstance(route, APIRoute)}
    add_gate(app, limits, api_key, service.worker, paths)
    if cors:  # last, so that it is outermost: a page must be able to read what was refused, too
        app.add_middleware(CORSMiddleware, allow_origins=list(cors), allow_methods=["*"], allow_headers=["*"])
    for router in ROUTERS:
        app.include_router(router)
    return app
