"""Call a command in this process, and judge what it has done.

A case is one of:

traceback
    The command ended in another way than with code 0, or with code 2 and, as the last of its lines on standard error,
    exactly one that starts with "error: ". This includes exceptions other than TextnuggetsError that reached the command
    line, code 1 (an OSError), a panic of native code, a crash of the process, and no end within the time limit.
silent difference
    The command ended with code 0 and its result is wrong: it holds NaN or infinite numbers; or it differs from the result
    without damage although the file is protected by checksums or fingerprints, or although only bytes without a meaning
    were changed. In the last case, a refusal counts too.
lost file
    A file is gone or changed that the command is not told to write: its inputs, files beside them, and files of others in
    the folders that it writes to. Also an older output, if the command failed, and a file or folder directly in a folder
    that is changed in place (an index, a run), if the command does not remove any there.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

from textnuggets.cli import main
from textnuggets.io.hashing import digest_files


class Done(NamedTuple):
    """A finished command."""

    code: int | None
    """Exit code; None after an exception or a hang."""
    out: str
    error: str
    cause: str = ""
    """Where an exception was raised."""


class HangError(BaseException):
    """The time limit was reached. It is no Exception, so that no handler of errors catches it."""


def call(arguments: Sequence[str], stdin: bytes = b"", limit: float = 30) -> Done:
    """Run the command line; what native code writes to standard error is included."""
    argv, streams, handler = sys.argv, (sys.stdin, sys.stdout, sys.stderr), signal.getsignal(signal.SIGALRM)
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    sys.argv = ["textnuggets", *arguments]
    sys.stdin, sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO(stdin)), out, err
    signal.signal(signal.SIGALRM, _hang)
    signal.setitimer(signal.ITIMER_REAL, limit)
    code, cause = None, ""
    _HUNG.clear()
    with _native_stderr() as native:
        try:
            with warnings.catch_warnings():
                main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
            if code not in (0, 2):
                cause = _where(ended.__context__ or ended)
        except BaseException as error:  # panics of native code are no Exception
            cause = _where(error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
            sys.argv, (sys.stdin, sys.stdout, sys.stderr) = argv, streams
    if _HUNG:  # also if somebody has caught the exception
        code, cause = None, _HUNG[0]
    shown = [stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, err)]
    return Done(code, shown[0], shown[1] + "".join(native), cause)


_HUNG: list[str] = []  # where the time limit was reached


def _hang(_: int, frame: FrameType | None) -> NoReturn:
    place = "?" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    _HUNG.append(f"HangError at {place}: no end within the time limit")
    raise HangError


@contextmanager
def _native_stderr() -> Iterator[list[str]]:
    """Collect what is written to the descriptor of standard error past Python."""
    found: list[str] = []
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield found
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            found.append(file.read().decode("utf-8", "replace"))


def _where(error: BaseException) -> str:
    """Return the type and text of an exception, and the last line of this package that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/textnuggets/" in frame.filename]
    last = [f"{f.filename.rpartition('/textnuggets/')[2]}:{f.lineno}" for f in ours[-1:]]
    inner = [f"{Path(f.filename).name}:{f.lineno}" for f in frames[-1:]]
    text = " ".join(str(error).split())[:120]
    return f"{type(error).__name__} at {', '.join(dict.fromkeys(last + inner))}: {text}"


def find_traceback(done: Done) -> str | None:
    """Return what is wrong with the way in which a command ended."""
    if done.code not in (0, 2):
        return done.cause or f"code {done.code}"
    for sign in ("Traceback (most recent call last)", "panicked at"):
        if sign in done.error:
            return f"{sign}: {done.error[done.error.index(sign) :][:150]!r}"
    if done.code == 2:
        lines = [line for line in done.error.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error: ")]
        if len(errors) != 1 or lines[-1:] != errors:
            return f"the last line is not the only error: {lines[-2:]}"
        if errors[0].strip() == "error:":
            return "the error says nothing"
    return None


class Snapshot(NamedTuple):
    """Files that must stay as they are, by their path."""

    files: dict[Path, str]
    kept: list[Path]
    """Files and folders that must stay, with any content."""

    @classmethod
    def take(cls, files: Sequence[Path], kept: Sequence[Path]) -> Snapshot:
        """Remember files by their content."""
        return cls({path: _digest(path) for path in files}, list(kept))

    def find_lost(self) -> list[str]:
        """Return the files that are gone or changed."""
        lost = [f"{path} gone" for path in (*self.files, *self.kept) if not os.path.lexists(path)]
        changed = (
            path for path, digest in self.files.items() if os.path.lexists(path) and _digest(path) != digest
        )
        return lost + [f"{path} changed" for path in changed]


def _digest(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        return f"not a file: {path.is_symlink()} {path.is_dir()}"
    with suppress(OSError):
        return digest_files(path)
    return "unreadable"
