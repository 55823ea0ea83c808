"""The HTTP API: `create_app` builds it from models and an optional index."""

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

from textnuggets.model.interface import TextInterface
from textnuggets.search.index import NuggetIndex
from textnuggets.serve.hosts import Hosts
from textnuggets.serve.middleware import Limits, add_errors, add_gate
from textnuggets.serve.models import Models
from textnuggets.serve.routes import about, search, standard, texts
from textnuggets.serve.scheduler import Worker
from textnuggets.serve.service import Service

ROUTERS = (standard.router, texts.router, search.router, about.router)


def create_app(
    models: Mapping[str, TextInterface],
    index: NuggetIndex | None = None,
    limits: Limits | None = None,
    api_key: str | None = None,
    cors: Sequence[str] = (),
    hosts: Hosts | None = None,
) -> FastAPI:
    """Return the FastAPI application.

    Args:
        models: Models by name; requests that name no model use the first suitable one.
        index: Index for /search; its model is served as well and is the default for comparing texts.
        limits: Limits of requests and responses; the defaults of `Limits` if None.
        api_key: Key required as `Authorization: Bearer ...`, except for the page and /health.
        cors: Origins that may send requests from a browser.
        hosts: Hosts that requests may name; only localhost if None.
    """
    limits = limits or Limits()
    if api_key == "":
        raise ConfigError("the API key is empty: set a key, or pass None for no key.")
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
        description="Texts as a few vectors that can be indexed, compared, and decoded back into the text.",
        lifespan=lifespan,
        docs_url=None,  # they load scripts from other hosts; `about.docs` replaces them
        redoc_url=None,
    )
    app.state.service = service
    add_errors(app)
    routes = (route for router in ROUTERS for route in router.routes)
    paths = {route.path for route in routes if isinstance(route, APIRoute)}
    add_gate(app, limits, hosts or Hosts(), api_key, service.worker, paths)
    if cors:  # added last, as the outermost middleware, so that error responses also have CORS headers
        app.add_middleware(CORSMiddleware, allow_origins=list(cors), allow_methods=["*"], allow_headers=["*"])
    for router in ROUTERS:
        app.include_router(router)
    return app
