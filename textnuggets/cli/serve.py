"""textnuggets serve: the HTTP API and the page."""

from __future__ import annotations

import socket
import sys
from typing import Annotated

import typer

from textnuggets.errors import InputError, MissingExtraError


def serve(
    model: Annotated[
        str, typer.Option("--model", help="Folder, hub id or name of a nugget model.")
    ] = "default",
    index: Annotated[str | None, typer.Option("--index", help="An index to search in.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any.")] = 8000,
    api_key: Annotated[
        str | None, typer.Option(envvar="TEXTNUGGETS_API_KEY", help="Ask for this key.")
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(help="An origin whose pages may ask; may be repeated.")
    ] = None,
    batch_ms: Annotated[
        float, typer.Option(min=0, help="How long requests wait for others; 0 does not batch.")
    ] = 5.0,
    seconds: Annotated[float, typer.Option(min=0.1, help="Until a request is given up.")] = 60.0,
    waiting: Annotated[int, typer.Option(min=1, help="Requests that may wait.")] = 64,
) -> None:
    """Serve embeddings, reranking, decoding and search over HTTP, and a page to look at."""
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtraError("uvicorn", "serve", "the server") from error

    from textnuggets.cli.options import load_model
    from textnuggets.model.identity import fingerprint
    from textnuggets.search.index import NuggetIndex
    from textnuggets.serve.app import create_app
    from textnuggets.serve.gate import Limits

    if host not in ("127.0.0.1", "localhost", "::1") and api_key is None:
        print(f"note: {host} may be reached by others, and no --api-key is asked for.", file=sys.stderr)
    loaded = load_model(model)
    opened = None
    if index is not None:
        opened = NuggetIndex.open(index)
        if opened.manifest.fingerprint == fingerprint(loaded):
            opened.close()
            opened = NuggetIndex.open(index, loaded)  # one model in memory, not two
    limits = Limits(seconds=seconds, waiting=waiting, batch_seconds=batch_ms / 1000)
    app = create_app(loaded, model, opened, limits, api_key, cors or ())
    config = uvicorn.Config(app, host, port, log_level="warning", timeout_graceful_shutdown=int(seconds) + 1)
    server = uvicorn.Server(config)
    try:
        sockets = [config.bind_socket()]
    except SystemExit as error:
        raise InputError(f"{host}:{port} cannot be listened on: choose another --port.") from error
    # asyncio sends small packets at once only on sockets that name their protocol, which uvicorn's do not: without this
    # an answer's second packet waits 40 ms for the client to acknowledge the first.
    sockets[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sockets[0].listen(config.backlog)  # who reads the address below may connect at once
    address = sockets[0].getsockname()
    print(f"http://{address[0]}:{address[1]} (Ctrl-C stops it)", file=sys.stderr, flush=True)
    server.run(sockets)
