"""textnuggets serve: run the HTTP API and its page."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from textnuggets.cli.options import MODEL, between, quiet_transformers
from textnuggets.shipped import locate


def serve(
    model: Annotated[list[str] | None, typer.Option("--model", help=f"{MODEL}; may be repeated.")] = None,
    index: Annotated[
        str | None, typer.Option("--index", help="Index to search; its model is served as well.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = 8000,
    api_key: Annotated[
        str | None, typer.Option(envvar="TEXTNUGGETS_API_KEY", help="API key that requests must have.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Host name in requests to accept besides localhost and --host; may be repeated. * accepts all."
        ),
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(help="Origin that may send requests from a browser; may be repeated.")
    ] = None,
    batch_ms: Annotated[
        float,
        typer.Option(
            callback=between(0, 10_000),
            help="Milliseconds to wait for further requests to batch; 0 disables batching.",
        ),
    ] = 5.0,
    timeout: Annotated[
        float, typer.Option(callback=between(0.1, 86_400), help="Timeout of a request in seconds.")
    ] = 60.0,
    max_queue: Annotated[
        int, typer.Option(min=1, max=100_000, help="Maximum number of queued requests; further ones get 503.")
    ] = 64,
) -> None:
    """Serve embeddings, reranking, decoding and search over HTTP, with a web page to try them.

    By default, the models are 'search' (or the model of the index) and 'reconstruct'.
    """
    for name in model or ():
        locate(name)  # reports a wrong name before torch is imported
    from textnuggets.serve.app import create_app
    from textnuggets.serve.hosts import LOCAL, Hosts
    from textnuggets.serve.loading import load_all
    from textnuggets.serve.middleware import Limits
    from textnuggets.serve.server import AppServer

    quiet_transformers()
    hosts = Hosts([host, *(allow_host or ())])
    if host not in LOCAL and api_key is None:
        print(f"note: {host} may be reachable by others; set --api-key to restrict access.", file=sys.stderr)
    models, opened = load_all(model, index)
    limits = Limits(timeout=timeout, max_queue=max_queue, batch_seconds=batch_ms / 1000)
    app = create_app(models, opened, limits, api_key, cors or (), hosts)
    server = AppServer(app, host, port, limits)
    print(f"{server.address} (Ctrl-C stops it)", file=sys.stderr, flush=True)
    server.run()
