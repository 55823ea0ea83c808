"""Clients that never finish a request: their connections are closed in time, and do not delay a shutdown."""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from textnuggets.serve.app import create_app
from textnuggets.serve.middleware import Limits
from textnuggets.serve.server import AppServer

CLIENTS = 200
LONG = 60.0  # a limit that no test waits for
PATIENCE = 20.0  # seconds after which a test fails, on any machine
UNFINISHED = {
    "headers": b"GET /health HTTP/1.1\r\nHost: localhost\r\n",
    "body": b"POST /nuggets HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
    "nothing": b"",
}
KEY = "secret"


@contextmanager
def running(model, **options):
    """Run a server in a thread; yield it, and stop it at the end."""
    limits = Limits(**options)
    server = AppServer(create_app({"tiny": model}, limits=limits, api_key=KEY), "127.0.0.1", 0, limits)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def open_connections(server, stack, request):
    """Open many connections that send a part of a request."""
    address = server.socket.getsockname()
    made = [stack.enter_context(socket.create_connection(address, PATIENCE)) for _ in range(CLIENTS)]
    for connection in made:
        connection.sendall(request)
    return made


def read_until_closed(connections):
    """Return all that the server sends on each connection until it closes it."""
    received = dict.fromkeys(connections, b"")
    end = time.monotonic() + PATIENCE
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        while selector.get_map():
            assert time.monotonic() < end, f"{len(selector.get_map())} connections are still open"
            for key, _ in selector.select(PATIENCE):
                try:
                    data = key.fileobj.recv(65536)
                except ConnectionResetError:
                    data = b""
                received[key.fileobj] += data
                if not data:
                    selector.unregister(key.fileobj)
    return list(received.values())


def with_key(request):
    return request.replace(b"\r\n", f"\r\nAuthorization: bearer {KEY}\r\n".encode(), 1)


@pytest.mark.parametrize("part", UNFINISHED)
def test_requests_that_never_end_are_closed_with_an_error(copier, part, capfd):
    limit = "body_seconds" if part == "body" else "header_seconds"
    other = {"header_seconds": LONG, "body_seconds": LONG, limit: 0.3}
    with running(copier, **other) as server, ExitStack() as stack:
        connections = open_connections(server, stack, with_key(UNFINISHED[part]))
        for answer in read_until_closed(connections):
            head, body = answer.split(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 408 ")
            assert b"connection: close" in head.lower()
            error = json.loads(body)["error"]
            assert error["type"] == "timeout"
            assert "did not arrive within 0.3 seconds" in error["message"]
        assert httpx.get(f"{server.address}/health").status_code == 200
    assert capfd.readouterr().err == ""  # where uvicorn reports tracebacks


def test_a_body_that_trickles_in_does_not_extend_the_limit(copier):
    with running(copier, body_seconds=0.5) as server:
        with socket.create_connection(server.socket.getsockname(), PATIENCE) as connection:
            connection.sendall(with_key(UNFINISHED["body"]))
            connection.settimeout(0.05)
            end, received = time.monotonic() + PATIENCE, b""
            while not received:
                assert time.monotonic() < end
                try:
                    connection.sendall(b" ")
                    received = connection.recv(65536)
                except TimeoutError:
                    continue
        assert received.startswith(b"HTTP/1.1 408 ")


def test_a_refused_request_whose_body_never_ends_is_closed(copier):
    with running(copier, body_seconds=0.3) as server, ExitStack() as stack:
        connections = open_connections(server, stack, UNFINISHED["body"])  # without the key
        for connection in connections:
            connection.sendall(b" ")
        for answer in read_until_closed(connections):
            assert answer.startswith(b"HTTP/1.1 401 ")
            assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("part", UNFINISHED)
def test_a_shutdown_does_not_wait_for_requests_that_never_end(copier, part, capfd):
    with ExitStack() as stack:
        with running(copier, header_seconds=LONG, body_seconds=LONG, timeout=LONG) as server:
            connections = open_connections(server, stack, with_key(UNFINISHED[part]))
            httpx.get(f"{server.address}/health")  # the server has read all that came before
        answers = read_until_closed(connections)
    expected = b"HTTP/1.1 503 " if part == "body" else b""
    assert all(answer.startswith(expected) for answer in answers)
    assert capfd.readouterr().err == ""


def test_a_connection_is_kept_for_the_next_request(copier):
    key = {"Authorization": f"Bearer {KEY}"}
    with (
        running(copier, header_seconds=0.5, body_seconds=0.5) as server,
        httpx.Client(base_url=server.address, headers=key) as client,
    ):
        streams = set()
        for _ in range(2):
            answer = client.post("/nuggets", json={"texts": ["a"]})
            assert answer.status_code == 200
            streams.add(answer.extensions["network_stream"])
            time.sleep(0.7)  # between requests, the limit does not apply
    assert len(streams) == 1
