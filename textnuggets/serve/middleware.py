"""Middleware: hosts, API key and size limits, one format for all errors, and metrics for Prometheus."""

from __future__ import annotations

import hmac
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from textnuggets.errors import IndexFileError, MissingExtraError, TextnuggetsError

try:
    from fastapi import FastAPI, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
    from starlette.exceptions import HTTPException
except ImportError as error:
    raise MissingExtraError(error.name or "fastapi", "serve", "the server") from error

from textnuggets.serve import schemas as s
from textnuggets.serve.hosts import Hosts
from textnuggets.serve.scheduler import Worker

FIELDS = {
    field
    for kind in vars(s).values()
    if isinstance(kind, type)
    for field in getattr(kind, "model_fields", {})
}


@dataclass(frozen=True)
class Limits:
    """Limits of requests and responses."""

    body_bytes: int = 4_000_000
    """Maximum size of a request body."""
    texts: int = 256
    """Maximum number of texts per request."""
    tokens: int = 65_536
    """Maximum number of tokens per request, over all its texts."""
    header_seconds: float = 10.0
    """Time in which the headers of a request must arrive, in seconds."""
    body_seconds: float = 30.0
    """Time in which the body of a request must arrive, in seconds."""
    timeout: float = 60.0
    """Timeout of a request once it has arrived, in seconds."""
    max_queue: int = 64
    """Maximum number of queued requests; further ones get 503."""
    batch_seconds: float = 0.005
    """Time a request waits for others to share a batch with, in seconds; 0 disables batching."""
    batch_tokens: int = 4096
    """Approximate number of tokens per batch."""
    numbers: int = 8_000_000
    """Maximum number of values in a response: vectors times dimensions, or cosines."""


class Refused(Exception):  # noqa: N818  a response rather than an error
    """Rejection of a request, with its status and message."""

    def __init__(
        self, status: int, message: str, param: str | None = None, kind: str = "invalid_request"
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.kind = status, param, kind


def error_response(status: int, message: str, kind: str, param: str | None = None) -> JSONResponse:
    """Return an error in the format of all errors."""
    content = {"error": {"message": message, "type": kind, "param": param}}
    headers = {"Retry-After": "1"} if status == 503 else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(content, status, headers)


def _has_key(request: Request, api_key: str) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    matches = hmac.compare_digest(given.strip().encode("latin-1", "replace"), api_key.encode())
    return matches and scheme.lower() == "bearer"


def add_errors(app: FastAPI) -> None:
    """Return all errors in one format, which names the field that caused them."""

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        return error_response(error.status, str(error), error.kind, error.param)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        # Keep field names and list indices; pydantic also names the branch of a union that it tried.
        location = (
            [part for part in first["loc"] if part != "body"] if first["type"] != "json_invalid" else []
        )
        location = [
            part for i, part in enumerate(location) if not i or isinstance(part, int) or part in FIELDS
        ]
        param = ".".join(map(str, location)) or None
        return error_response(422, f"{param or 'body'}: {first['msg']}", "invalid_request", param)

    @app.exception_handler(TextnuggetsError)
    async def ours(_: Request, error: TextnuggetsError) -> Response:
        status = 503 if isinstance(error, IndexFileError) else 422
        return error_response(status, str(error), "invalid_request" if status == 422 else "index")

    @app.exception_handler(Exception)
    async def unforeseen(_: Request, error: Exception) -> Response:
        return error_response(500, f"internal server error ({type(error).__name__}).", "server")

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        response = error_response(error.status_code, str(error.detail), "invalid_request")
        response.headers.update(error.headers or {})
        return response


def add_gate(
    app: FastAPI,
    limits: Limits,
    hosts: Hosts,
    api_key: str | None,
    worker: Worker,
    paths: Collection[str],
) -> None:
    """Check the host, key and size of each request before its body is read; record its status and duration.

    Args:
        app: The application.
        limits: Limits of requests.
        hosts: Hosts that requests may name.
        api_key: Key that requests need; None for no key.
        worker: Worker whose queue and batches are reported in the metrics.
        paths: Paths that are counted by name; all others are counted as "other".
    """
    registry = CollectorRegistry()
    requests = Counter("textnuggets_requests", "Completed requests.", ["path", "status"], registry=registry)
    seconds = Histogram("textnuggets_request_seconds", "Duration of requests.", ["path"], registry=registry)
    pending = Gauge("textnuggets_pending", "Requests accepted and not completed.", registry=registry)
    batches = Gauge("textnuggets_batches", "Batches encoded.", registry=registry)
    batched = Gauge("textnuggets_batched_requests", "Requests encoded in batches.", registry=registry)
    open_paths = {"/", "/health"}  # the page asks for the key

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        pending.set(worker.pending)
        batches.set(worker.batches)
        batched.set(worker.batched)
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    known = {*paths, "/metrics", "/openapi.json"}

    @app.middleware("http")
    async def gate(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
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
        host = request.headers.get("host")
        if not hosts.allows(host):
            return error_response(
                421, f"no server for the host {host!r}: see --allow-host.", "invalid_request"
            )
        needs_key = request.scope["path"] not in open_paths and request.method != "OPTIONS"
        if api_key is not None and needs_key and not _has_key(request, api_key):
            return error_response(
                401, "missing or wrong API key: send Authorization: Bearer KEY.", "unauthorized"
            )
        if request.method == "POST":
            try:
                size = int(request.headers.get("content-length", ""))
            except ValueError:
                size = -1
            # With both headers, the length is ignored and the body could have any size.
            if size < 0 or "transfer-encoding" in request.headers:
                return error_response(
                    411,
                    "Content-Length is required, and Transfer-Encoding is not supported.",
                    "invalid_request",
                )
            if size > limits.body_bytes:
                return error_response(
                    413, f"the body has {size} bytes; the limit is {limits.body_bytes}.", "invalid_request"
                )
        return await call(request)
