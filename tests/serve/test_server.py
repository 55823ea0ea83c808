"""The server on a socket."""

from __future__ import annotations

import socket

from textnuggets.cli.serve import serve


def test_the_printed_address_accepts_connections_and_packets_are_sent_immediately(monkeypatch, copier_folder):
    seen = []

    def run(_, sockets):
        (listening,) = sockets
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted:
            seen.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        listening.close()

    monkeypatch.setattr("uvicorn.Server.run", run)
    serve(model=[copier_folder], port=0)
    assert [bool(value) for value in seen] == [True]
