"""The models that ship with textnuggets, by name.

`search` and `reconstruct` are part of this package. `lm` is in the distribution `textnuggets-models`, which
`pip install 'textnuggets[models]'` installs, together with the earlier `reconstruct` it was trained on.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from textnuggets.errors import CheckpointError, MissingExtraError
from textnuggets.io.folders import recover_folder

DEFAULT = "search"
JOBS = {
    "search": "compare and search texts",
    "reconstruct": "compress texts and decode them again",
    "lm": "continue a text from its compressed history",
}
ALIASES = {"default": "reconstruct"}
OWN = Path(__file__).parent / "models"


def find_shipped(name: str | Path) -> Path | None:
    """Return the folder of a shipped model, or None for any other name.

    A local folder of the same name takes precedence. Raise MissingExtraError if the model's distribution is not
    installed.
    """
    known = ALIASES.get(str(name), str(name))
    if known not in JOBS or (Path(name) / "config.json").is_file():
        return None
    for folder in _folders():
        if (folder / known / "config.json").is_file():
            return folder / known
    raise MissingExtraError("textnuggets-models", "models", f"the model {known!r}")


def locate(name: str | Path) -> str:
    """Return the folder of a shipped model, or the given folder or hub id unchanged.

    Raise CheckpointError, without contacting the Hub, for any other name.
    """
    folder = find_shipped(name)
    if folder is not None:
        return str(folder)
    if not Path(name).exists():
        recover_folder(Path(name))  # the process that replaced it may have been killed
    # Ids of user models on the Hub have the form owner/name.
    if not Path(name).exists() and "/" not in str(name) and "\\" not in str(name):
        raise CheckpointError(
            f"there is no model {str(name)!r}: give {', '.join(JOBS)} (shipped), a folder or a hub id (owner/name)."
        )
    return str(name)


def shipped_name(path: str | Path) -> str | None:
    """Return the name of a shipped model given its name or folder, or None for any other model."""
    if (folder := find_shipped(path)) is not None:
        return folder.name
    resolved = Path(path).resolve()
    is_shipped = resolved.name in JOBS and any(resolved.parent == folder.resolve() for folder in _folders())
    return resolved.name if is_shipped else None


def _folders() -> list[Path]:
    """Return the folders that hold shipped models."""
    spec = find_spec("textnuggets_models")
    extra = [] if spec is None else [Path(location) for location in spec.submodule_search_locations or ()]
    return [OWN, *extra]
