"""The exception hierarchy.

    TextnuggetsError
    ├── ConfigError          an invalid setting (also a ValueError)
    ├── BackboneError        an unsupported architecture, attention or tokenizer (ValueError)
    ├── CheckpointError      a saved model that is missing or incomplete (OSError)
    ├── IndexFileError       an index that is missing, damaged, locked or built with another model (OSError)
    ├── InputError           an invalid text, line or file (ValueError)
    └── MissingExtraError    an optional dependency that is not installed (ImportError)

Each message states the problem, the value and where it occurred, and how to fix it.
The command line prints it on one line and exits with code 2.

`TextnuggetsWarning` marks results that may be worse than expected; the command line prints it as `warning: ...`.
"""

from __future__ import annotations


class TextnuggetsError(Exception):
    """Base class of all exceptions that textnuggets raises."""


class TextnuggetsWarning(UserWarning):
    """A result that may be worse than expected, for example for texts in a language unknown to the model."""


class ConfigError(TextnuggetsError, ValueError):
    """A setting out of range, or settings that exclude each other."""


class BackboneError(TextnuggetsError, ValueError):
    """A backbone with an unsupported architecture, attention implementation or tokenizer."""


class CheckpointError(TextnuggetsError, OSError):
    """A saved model that is missing, incomplete or of another type."""


class IndexFileError(TextnuggetsError, OSError):
    """An index that cannot be opened, read or written."""


class InputError(TextnuggetsError, ValueError):
    """An invalid text or file; the message names the file and line if there is one."""


class MissingExtraError(TextnuggetsError, ImportError):
    """A missing optional dependency; the message contains the command that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}: pip install 'textnuggets[{extra}]'")
