"""Text as a few vectors that can be searched, decoded back into the text, or read by a language model.

    import textnuggets

    model = textnuggets.load()  # "search", "reconstruct", "lm", a folder or a hub id
    query = model.encode_query("Who may cross the bridge?")
    model.similarity(query, model.encode_document(["The bridge is closed to cars.", "It rained."]))

The names below are the public API. Each is imported on first use, because importing torch and
transformers takes seconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from textnuggets.causal.modeling import CausalNuggetLM
    from textnuggets.config import NuggetConfig
    from textnuggets.errors import TextnuggetsError
    from textnuggets.integrations.sentence_transformers import as_sentence_transformer
    from textnuggets.lm.modeling import NuggetLM
    from textnuggets.loading import load
    from textnuggets.model.maxsim import maxsim
    from textnuggets.model.modeling import NuggetModel
    from textnuggets.model.nuggets import Nuggets
    from textnuggets.model.parquet import load_nuggets, save_nuggets
    from textnuggets.search.index import NuggetIndex

_HOMES = {
    "CausalNuggetLM": "textnuggets.causal.modeling",
    "NuggetConfig": "textnuggets.config",
    "NuggetIndex": "textnuggets.search.index",
    "NuggetLM": "textnuggets.lm.modeling",
    "NuggetModel": "textnuggets.model.modeling",
    "Nuggets": "textnuggets.model.nuggets",
    "TextnuggetsError": "textnuggets.errors",
    "as_sentence_transformer": "textnuggets.integrations.sentence_transformers",
    "load": "textnuggets.loading",
    "load_nuggets": "textnuggets.model.parquet",
    "maxsim": "textnuggets.model.maxsim",
    "save_nuggets": "textnuggets.model.parquet",
}

__all__ = [
    "CausalNuggetLM",
    "NuggetConfig",
    "NuggetIndex",
    "NuggetLM",
    "NuggetModel",
    "Nuggets",
    "TextnuggetsError",
    "as_sentence_transformer",
    "load",
    "load_nuggets",
    "maxsim",
    "save_nuggets",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'textnuggets' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
