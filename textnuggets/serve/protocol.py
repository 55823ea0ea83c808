"""HTTP connections with a limit on the time in which a request must arrive."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from textnuggets.serve.middleware import Limits, error_response


def timed_protocol(limits: Limits) -> type[H11Protocol]:
    """Return uvicorn's protocol for HTTP/1.1, with time limits for the headers and the body of a request.

    Pass it to uvicorn as `http`. Uvicorn itself only limits the time between requests.
    """

    class TimedProtocol(H11Protocol):
        """Connection that is closed if the headers or the body of a request do not arrive in time."""

        _timer: asyncio.TimerHandle | None = None
        _awaited: tuple[Any, ...] | None = None
        """The part of a request that the timer is for."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def shutdown(self) -> None:
            """Finish a request that was received; drop one that was not, since it could take until its time limit."""
            if self.conn.their_state is h11.SEND_BODY:
                self._refuse(503, "the server is stopping.", "busy")
            else:
                super().shutdown()

        def _watch(self) -> None:
            """Start a timer when the server begins to wait for headers or a body, and stop it when they are complete."""
            state = self.conn.their_state
            # Between requests, uvicorn's own timer runs.
            idle = state is h11.IDLE and self.cycle is not None and not self.conn.trailing_data[0]
            awaited = None if idle or state not in (h11.IDLE, h11.SEND_BODY) else (state, self.cycle)
            if awaited == self._awaited:
                return
            self._stop_timer()
            self._awaited = awaited
            if awaited is None or self.transport.is_closing():
                return
            part, seconds = (
                ("headers", limits.header_seconds) if state is h11.IDLE else ("body", limits.body_seconds)
            )
            message = f"the {part} of the request did not arrive within {seconds:g} seconds."
            self._timer = self.loop.call_later(seconds, self._refuse, 408, message, "timeout")

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _refuse(self, status: int, message: str, kind: str) -> None:
            """Send an error, unless a response was begun, and close the connection."""
            self._stop_timer()
            if self.transport.is_closing():
                return
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                response = error_response(status, message, kind)
                headers = [*response.raw_headers, (b"connection", b"close")]
                for event in (
                    h11.Response(status_code=status, headers=headers),
                    h11.Data(data=bytes(response.body)),
                    h11.EndOfMessage(),
                ):
                    self.transport.write(self.conn.send(event) or b"")
            if self.cycle is not None:
                self.cycle.disconnected = True  # the application must not send another response
            if self.transport.get_write_buffer_size():  # the client does not read either
                self.transport.abort()
            else:
                self.transport.close()

    return TimedProtocol
