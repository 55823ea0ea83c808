"""textnuggets serve: the HTTP API and the page."""

from __future__ import annotations

import socket
import sys
from typing import Annotated

import typer

from textnuggets.cli.options import MODEL, quiet_transformers
from textnuggets.errors import InputError, MissingExtraError
from textnuggets.shipped import locate


def serve(
    model: Annotated[list[str] | None, typer.Option("--model", help=f"{MODEL}; may be repeated.")] = None,
    index: Annotated[
        str | None, typer.Option("--index", help="An index to search in; its model is served, too.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any.")] = 8000,
    api_key: Annotated[
        str | None, typer.Option(envvar="TEXTNUGGETS_API_KEY", help="Ask for this key.")
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(help="An origin whose pages may send requests; may be repeated.")
    ] = None,
    batch_ms: Annotated[
        float, typer.Option(min=0, help="How long requests wait for others; 0 does not batch.")
    ] = 5.0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds until a request is given up.")] = 60.0,
    max_queue: Annotated[int, typer.Option(min=1, help="Requests that may wait; more get 503.")] = 64,
) -> None:
    """Serve embeddings, reranking, decoding and search over HTTP, and a page to look at.

    Without --model it serves 'search', or the model of the index, and 'reconstruct' if it is installed.
    """
    for name in model or ():
        locate(name)  # a wrong name is reported before torch is imported
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtraError("uvicorn", "serve", "the server") from error

    from textnuggets.serve.app import create_app
    from textnuggets.serve.loading import load_all
    from textnuggets.serve.middleware import Limits

    quiet_transformers()
    if host not in ("127.0.0.1", "localhost", "::1") and api_key is None:
        print(f"note: {host} may be reached by others, and no --api-key is asked for.", file=sys.stderr)
    models, opened = load_all(model, index)
    limits = Limits(timeout=timeout, max_queue=max_queue, batch_seconds=batch_ms / 1000)
    app = create_app(models, opened, limits, api_key, cors or ())
    config = uvicorn.Config(app, host, port, log_level="warning", timeout_graceful_shutdown=int(timeout) + 1)
    server = uvicorn.Server(config)
    try:
        sockets = [config.bind_socket()]
    except SystemExit as error:
        raise InputError(f"{host}:{port} cannot be listened on: choose another --port.") from error
    # asyncio sends small packets at once only on sockets that name their protocol, which uvicorn's do not: without this
    # an answer's second packet waits 40 ms for the client to acknowledge the first.
    sockets[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sockets[0].listen(config.backlog)  # before the address is printed, so that clients can connect at once
    address = sockets[0].getsockname()
    print(f"http://{address[0]}:{address[1]} (Ctrl-C stops it)", file=sys.stderr, flush=True)
    server.run(sockets)
