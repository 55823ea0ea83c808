"""Who may send requests: hosts, the key, and other origins."""

from __future__ import annotations

import pytest

from tests.serve.requests import BODIES, connect
from textnuggets.cli.serve import serve
from textnuggets.errors import ConfigError
from textnuggets.serve.app import create_app
from textnuggets.serve.hosts import Hosts

LOCAL = [
    "localhost",
    "localhost:8000",
    "LocalHost",
    "localhost.",
    "127.0.0.1:80",
    "[::1]",
    "[::1]:8000",
    "[0:0::1]",
]
FOREIGN = [
    "evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "localhost:80@evil.example",
    "192.168.1.5:8000", "[fe80::1]", "", "::1", "[::1", "localhost/", "localhost:80:80",
]  # fmt: skip


@pytest.fixture(scope="module")
def locked(copier):
    """A server with a key."""
    with connect(create_app({"tiny": copier}, api_key="secret")) as made:
        yield made


# -------------------------------------------------------------------- hosts


@pytest.mark.parametrize("host", LOCAL)
def test_requests_to_this_machine_are_accepted(client, host):
    assert client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", FOREIGN)
def test_a_site_that_resolves_to_this_machine_is_refused(client, host):
    for answer in (
        client.get("/health", headers={"Host": host}),
        client.get("/", headers={"Host": host}),
        client.post("/nuggets", json={"texts": ["a"]}, headers={"Host": host}),
    ):
        assert answer.status_code == 421
        assert answer.json()["error"] == {
            "message": f"no server for the host {host!r}: see --allow-host.",
            "type": "invalid_request",
            "param": None,
        }


def test_the_host_is_checked_before_the_key(locked):
    answer = locked.get("/v1/models", headers={"Host": "evil.example"})
    assert answer.status_code == 421


@pytest.mark.parametrize(
    ("names", "allowed", "refused"),
    [
        (["Example.org"], ["example.org:80", "localhost"], ["www.example.org", "10.0.0.1"]),
        (["10.0.0.1"], ["10.0.0.1:8000", "127.0.0.1"], ["10.0.0.2", "example.org"]),
        (["0.0.0.0"], ["0.0.0.0:80", "10.0.0.1", "[fe80::1]:80", "localhost"], ["example.org", "10.0.0.1.example.org"]),
        (["::"], ["[::]:80", "10.0.0.1", "[fe80::1]:80"], ["example.org", ""]),
        (["[fe80::1]"], ["[fe80:0::1]:80"], ["[fe80::2]"]),
        (["127.0.0.1", "*"], ["example.org", "10.0.0.1", ""], []),
    ],
)  # fmt: skip
def test_further_hosts_are_accepted_if_they_are_named(names, allowed, refused):
    hosts = Hosts(names)
    assert [host for host in (*allowed, *refused) if hosts.allows(host)] == allowed


@pytest.mark.parametrize(
    "name", ["", "https://example.org", "example.org:80", "*.example.org", "a b", "example.org/"]
)
def test_a_setting_that_is_not_a_host_is_refused(name):
    with pytest.raises(ConfigError, match="is not a host"):
        Hosts([name])


def test_the_command_accepts_its_own_address_and_those_of_allow_host(monkeypatch, copier_folder, capsys):
    apps = []
    monkeypatch.setattr(
        "textnuggets.serve.server.AppServer.run", lambda self: (apps.append(self), self.socket.close())
    )
    serve(model=[copier_folder], host="0.0.0.0", port=0, allow_host=["box.example"])
    assert "0.0.0.0 may be reachable by others" in capsys.readouterr().err
    with connect(apps[0].server.config.app) as client:
        codes = [
            client.get("/health", headers={"Host": host}).status_code
            for host in ("10.1.2.3:80", "box.example", "evil.example")
        ]
    assert codes == [200, 200, 421]


# -------------------------------------------------------------------- the key


@pytest.mark.parametrize(
    "path", ["/docs", "/openapi.json", "/metrics", "/v1/models", "/redoc", "/nothing", *BODIES]
)
def test_a_key_is_required_if_one_is_set(locked, path):
    def ask(**headers):
        if path in BODIES:
            return locked.post(path, json=BODIES[path], headers=headers)
        return locked.get(path, headers=headers)

    refused = ask()
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.json()["error"]["type"] == "unauthorized"
    assert ask(Authorization="Bearer secret").status_code != 401


def test_the_page_and_the_health_check_need_no_key(locked):
    assert locked.get("/health").status_code == 200
    assert locked.get("/").status_code == 200


@pytest.mark.parametrize("value", ["Bearer secret", "bearer secret", "BEARER secret", "bEaReR  secret"])
def test_the_scheme_of_the_key_may_have_any_case(locked, value):
    assert locked.get("/v1/models", headers={"Authorization": value}).status_code == 200


@pytest.mark.parametrize(
    "value", ["Bearer no", "Bearer SECRET", "secret", "Basic secret", "Bearer", "Bearersecret", ""]
)
def test_another_key_or_scheme_is_refused(locked, value):
    assert locked.get("/v1/models", headers={"Authorization": value}).status_code == 401


def test_an_empty_key_is_refused(copier):
    with pytest.raises(ConfigError, match="the API key is empty"):
        create_app({"tiny": copier}, api_key="")


# -------------------------------------------------------------------- other origins


def test_other_origins_are_allowed_only_with_cors(copier):
    headers = {"Origin": "https://example.org"}
    with connect(create_app({"tiny": copier})) as client:
        assert "access-control-allow-origin" not in client.get("/health", headers=headers).headers
    with connect(create_app({"tiny": copier}, cors=["https://example.org"])) as client:
        allowed = client.get("/health", headers=headers).headers["access-control-allow-origin"]
        assert allowed == "https://example.org"
        refused = client.post("/nuggets", content=iter([b"{}"]), headers=headers)
        assert refused.headers["access-control-allow-origin"] == "https://example.org"
