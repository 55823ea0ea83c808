"""Backends that store an index: a folder on disk, or a collection on a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textnuggets.search.backends.base import Backend


def backend_at(place: str | Path, api_key: str | None = None) -> Backend:
    """Return the backend for a folder or an address, before anything is created or opened.

    Args:
        place: Folder, or `http://host:port/collection`.
        api_key: API key of a server.
    """
    # Imported here: each needs a package that is optional and slow to import.
    if str(place).startswith(("http://", "https://")):
        from textnuggets.search.backends.server import ServerBackend

        return ServerBackend(str(place), api_key)
    from textnuggets.search.backends.edge_backend import EdgeBackend

    return EdgeBackend(Path(place))
