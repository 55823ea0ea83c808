"""Locks of outputs: one writer at a time, and none once its process has ended, however it ended.

.NAME.lock     beside a file that is being written
DIR/.lock      in a folder that is being written
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from textnuggets.errors import InputError
from textnuggets.io.disk import follow_link

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Lock an output within the context; raise InputError if another process or thread is writing it.

    Args:
        path: File in an existing folder, or an existing folder. A link stands for what it points to.
    """
    path = follow_link(path)
    lock = path / LOCK if path.is_dir() else path.with_name(f".{path.name}{LOCK}")
    try:
        release = _acquire(lock) if fcntl else _acquire_on_windows(lock)
    except OSError as error:
        raise InputError(f"{path} cannot be locked for writing ({error}).") from error
    if release is None:
        raise InputError(f"{path} is being written by another process: wait for it, or write elsewhere.")
    try:
        yield
    finally:
        release()


def _acquire(lock: Path) -> Callable[[], None] | None:
    """Lock a file, which is created, and return the function that removes and releases it; None if it is locked.

    `FileLock` would leave the file beside the output.
    """
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):  # some network filesystems
                os.close(descriptor)
                raise
        if _is_open_as(lock, descriptor):
            return lambda: _release(lock, descriptor)
        os.close(descriptor)  # its last holder removed it before it was locked here


def _is_open_as(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _release(lock: Path, descriptor: int) -> None:
    try:
        with suppress(FileNotFoundError):
            lock.unlink()
    finally:
        os.close(descriptor)


def _acquire_on_windows(lock: Path) -> Callable[[], None] | None:
    held = FileLock(lock, thread_local=False)  # removes its file
    try:
        held.acquire(timeout=0)
    except Timeout:
        return None
    return held.release
