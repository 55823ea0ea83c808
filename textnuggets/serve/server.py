"""The server: an application on a socket, with limits on slow clients."""

from __future__ import annotations

import socket

from textnuggets.errors import InputError, MissingExtraError

try:
    import uvicorn
    from fastapi import FastAPI
except ImportError as error:
    raise MissingExtraError(error.name or "uvicorn", "serve", "the server") from error

from textnuggets.serve.middleware import Limits
from textnuggets.serve.protocol import timed_protocol


class AppServer:
    """An application that listens on an address; `run` handles requests until the process is told to stop.

    Args:
        app: The application.
        host: Address to listen on.
        port: Port to listen on; 0 picks a free one.
        limits: Limits of the application.
    """

    def __init__(self, app: FastAPI, host: str, port: int, limits: Limits) -> None:
        config = uvicorn.Config(
            app,
            host,
            port,
            http=timed_protocol(limits),
            ws="none",
            log_level="warning",
            timeout_graceful_shutdown=int(limits.timeout) + 1,
        )
        self.server = uvicorn.Server(config)
        try:
            self.socket = config.bind_socket()
        except SystemExit as error:
            raise InputError(f"cannot listen on {host}:{port}: choose another --port.") from error
        # asyncio sets TCP_NODELAY only on sockets created with a protocol number, and uvicorn's are not. Without it, the
        # second packet of a response waits 40 ms for the acknowledgement of the first.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Listen before the address is printed, so that clients can connect immediately.
        self.socket.listen(config.backlog)

    @property
    def address(self) -> str:
        """The URL of the server."""
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def run(self) -> None:
        """Handle requests until SIGINT or SIGTERM."""
        self.server.run([self.socket])

    def stop(self) -> None:
        """Stop it from another thread, as a signal would."""
        self.server.should_exit = True
