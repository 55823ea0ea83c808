"""Locks of outputs: the second writer is refused, and a killed one leaves none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from textnuggets.errors import InputError
from textnuggets.io import locks
from textnuggets.io.locks import writing

HOLD = (
    "import sys; from pathlib import Path; from textnuggets.io.locks import writing\n"
    "with writing(Path(sys.argv[1])): print(1, flush=True); sys.stdin.read()"
)


@pytest.fixture(params=["file", "folder"])
def out(request, tmp_path):
    if request.param == "folder":
        (tmp_path / "out").mkdir()
    return tmp_path / "out"


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_second_writer_is_refused_until_the_first_is_killed(out, tmp_path):
    before = listing(tmp_path)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(out)], stdin=-1, stdout=-1) as other:
        other.stdout.readline()
        with pytest.raises(InputError, match="out is being written by another process"), writing(out):
            pass
        other.kill()
    with writing(out):
        assert listing(tmp_path) != before
    assert listing(tmp_path) == before


def test_a_link_and_another_thread_of_the_process_are_the_same_output(out, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(out)
    for second in (out, link):
        with writing(out), pytest.raises(InputError, match="is being written"), writing(second):
            pass


def test_a_failed_writer_leaves_no_lock(out):
    with pytest.raises(RuntimeError), writing(out):
        raise RuntimeError
    with writing(out):
        pass


def test_a_lock_file_that_was_removed_meanwhile_locks_nothing(out, monkeypatch):
    # The previous holder removes the file between this process's opening and locking of it.
    flock, removed = locks.fcntl.flock, []

    def late(descriptor, operation):
        if not removed:
            removed.append(Path(f"/proc/self/fd/{descriptor}").readlink())
            removed[0].unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(locks.fcntl, "flock", late)
    with writing(out), pytest.raises(InputError, match="is being written"), writing(out):
        pass
    assert removed


def test_a_filesystem_without_locks_can_be_written_to(out, monkeypatch):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(locks.fcntl, "flock", unsupported)
    with writing(out):
        pass


def test_a_folder_that_cannot_be_written_is_reported(tmp_path):
    with pytest.raises(InputError, match="cannot be locked"), writing(tmp_path / "missing" / "file"):
        pass
    assert listing(tmp_path) == []
