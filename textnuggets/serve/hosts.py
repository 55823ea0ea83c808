"""Host names that requests may be addressed to, against DNS rebinding.

Another site can let its own name resolve to the address of this server. A browser then treats the server as part of that
site, and lets its scripts read the responses. Such requests have the name of the site in their header Host. They never
have an IP address there, because an address is not resolved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address

from textnuggets.errors import ConfigError

LOCAL = ("localhost", "127.0.0.1", "::1")
EVERY = "*"
_HEADER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+)(?::\d*)?")


class Hosts:
    """The hosts that requests may name: those of `LOCAL` and the given ones.

    Args:
        names: Host names or IP addresses. 0.0.0.0 and :: stand for all IP addresses, and * for all hosts.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        names = list(names)
        self._every = EVERY in names
        self._names = {_parse_setting(name) for name in (*LOCAL, *names) if name != EVERY}
        self._addresses = any(_is_address(name) and ip_address(name).is_unspecified for name in self._names)

    def allows(self, header: str | None) -> bool:
        """Return whether requests with this Host header are accepted; the port is ignored."""
        if self._every:
            return True
        found = _HEADER.fullmatch(header or "")
        if found is None:
            return False
        name = _normalize(found[1].strip("[]"))
        return name in self._names or (self._addresses and _is_address(name))


def _parse_setting(name: str) -> str:
    """Return the normalized name; raise ConfigError if it is not a host name or address."""
    bare = name.removeprefix("[").removesuffix("]")
    if not _is_address(bare) and (":" in name or EVERY in name or not _HEADER.fullmatch(name)):
        raise ConfigError(
            f"{name!r} is not a host: give a name or an IP address without scheme and port, such as example.org."
        )
    return _normalize(bare)


def _normalize(name: str) -> str:
    return str(ip_address(name)) if _is_address(name) else name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
