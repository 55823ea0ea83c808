"""Every error a user can meet, in one tree.

    TextnuggetsError
    ├── ConfigError          a setting that cannot be (also a ValueError)
    ├── BackboneError        an architecture or attention that cannot carry nuggets (ValueError)
    ├── CheckpointError      a saved model that is not there or not whole (OSError)
    ├── IndexFileError       an index that is missing, damaged, in use or of another model (OSError)
    ├── InputError           a text, line or file that cannot be read (ValueError)
    └── MissingExtraError    an optional dependency that is not installed (ImportError)

Each message says what was wrong, with the value and the place, and what to do.
The command line prints it as one line and exits with code 2.

`TextnuggetsWarning` is for results that are not what a user may expect; the command line prints `warning: ...`.
"""

from __future__ import annotations


class TextnuggetsError(Exception):
    """The root: `except TextnuggetsError` catches whatever this package raises on purpose."""


class TextnuggetsWarning(UserWarning):
    """A result that may be worse than expected, such as that of texts in a language the model does not know."""


class ConfigError(TextnuggetsError, ValueError):
    """A setting outside its range, or two settings that exclude each other."""


class BackboneError(TextnuggetsError, ValueError):
    """A backbone that cannot carry nuggets: wrong architecture, attention or tokenizer."""


class CheckpointError(TextnuggetsError, OSError):
    """A saved nugget model that is missing, incomplete or of another kind."""


class IndexFileError(TextnuggetsError, OSError):
    """An index that cannot be opened, read or written."""


class InputError(TextnuggetsError, ValueError):
    """A text or file that cannot be used; names file and line where there is one."""


class MissingExtraError(TextnuggetsError, ImportError):
    """An optional dependency is missing; the message holds the line that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}: pip install 'textnuggets[{extra}]'")
