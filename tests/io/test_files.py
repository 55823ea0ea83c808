"""Replacement of files and folders: what is a target, and what is left by dead processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

import pytest

from textnuggets.cli.reconstruct import _writer
from textnuggets.errors import CheckpointError, InputError
from textnuggets.io import folders
from textnuggets.io.files import check_output, replacing
from textnuggets.io.folders import replacing_folder
from textnuggets.shipped import locate


def write(path, text="new"):
    check_output(path)
    with replacing(path) as temporary:
        temporary.write_text(text)


def fill(path, text="new"):
    with replacing_folder(path) as folder:
        for name in ("a", "b"):
            (folder / name).write_text(text)


@pytest.fixture
def pipe(tmp_path):
    """A named pipe, and what is written to it."""
    path, read = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: read.append(path.read_text()), daemon=True)
    reader.start()
    return path, read, reader


def test_a_result_is_written_into_a_pipe_which_stays(tmp_path, pipe):
    path, read, reader = pipe
    write(path)
    reader.join(10)
    assert read == ["new"]
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


def test_reconstructed_lines_are_written_into_a_pipe(tmp_path, pipe):
    path, read, reader = pipe
    with _writer(path) as lines:
        lines.write("one\ntwo\n")
    reader.join(10)
    assert read == ["one\ntwo\n"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_device_stays_a_device(tmp_path):
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o20666, os.makedev(1, 3))
        device.write_text("")
    except OSError:
        pytest.skip("devices cannot be created here")
    write(device)
    assert device.is_char_device()
    assert list(tmp_path.iterdir()) == [device]


def test_standard_output_is_appended_to_also_if_it_is_a_file(tmp_path):
    code = "from pathlib import Path; from tests.io.test_files import write; write(Path('/dev/stdout'))"
    shown = tmp_path / "shown"
    with shown.open("w") as stdout:
        stdout.write("before ")
        stdout.flush()
        subprocess.run([sys.executable, "-c", code], stdout=stdout, check=True)
    assert shown.read_text() == "before new"


def test_what_cannot_be_written_is_refused_before_anything_is_computed(tmp_path, run):
    with pytest.raises(InputError, match="is a folder: name a file to write"):
        check_output(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        with pytest.raises(InputError, match="is a block device or a socket"):
            check_output(tmp_path / "s")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InputError, match="loop cannot be written"):
        check_output(tmp_path / "loop")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing" / "file")
    with pytest.raises(InputError, match="missing does not exist"):
        check_output(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    refused = run("encode", "-", "-o", tmp_path / "pipe")
    assert refused.returncode == 2
    assert "pipe is a device or pipe: name a file to write." in refused.stderr


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_the_file_it_points_to_is_replaced(tmp_path, exists):
    (tmp_path / "data").mkdir()
    (tmp_path / "links").mkdir()
    target, link = tmp_path / "data" / "file", tmp_path / "links" / "link"
    link.symlink_to("../data/file")
    if exists:
        target.write_text("old")
    with replacing(link) as temporary:
        assert temporary.parent.parent == target.parent
        temporary.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert not target.is_symlink()
    assert [p.name for p in (*(tmp_path / "data").iterdir(), *(tmp_path / "links").iterdir())] == [
        "file",
        "link",
    ]


def test_a_link_to_a_folder_stays_and_the_folder_is_replaced(tmp_path):
    (tmp_path / "models").mkdir()
    fill(tmp_path / "models" / "a", "old")
    (tmp_path / "link").symlink_to(tmp_path / "models" / "a")
    fill(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "models" / "a" / "a").read_text() == "new"
    assert len(list((tmp_path / "models").iterdir())) == 1


def test_a_file_in_the_place_of_a_folder_is_kept(tmp_path):
    (tmp_path / "best").write_text("mine")
    with pytest.raises(NotADirectoryError):
        fill(tmp_path / "best")
    assert (tmp_path / "best").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("replace", [write, fill])
def test_what_a_killed_process_left_is_removed_and_what_a_live_one_uses_is_not(tmp_path, replace):
    code = (
        "import sys; from pathlib import Path; from textnuggets.io.folders import temporary_folder\n"
        "with temporary_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'part').write_text('half'); print(folder, flush=True); input()"
    )
    target = tmp_path / "file"
    with subprocess.Popen([sys.executable, "-c", code, str(target)], stdin=-1, stdout=-1, text=True) as other:
        used = other.stdout.readline().strip()
        replace(target)
        assert {str(path) for path in tmp_path.iterdir()} == {str(target), used}
        other.kill()
    replace(target)
    assert list(tmp_path.iterdir()) == [target]


def test_temporary_files_of_other_targets_are_left_alone(tmp_path):
    for name in (".file.more.01234567.tmp", ".other.01234567.tmp", ".file.tmp", ".file.01234567.tmp"):
        (tmp_path / name).mkdir()
    write(tmp_path / "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".file.more.01234567.tmp", ".file.tmp", ".other.01234567.tmp", "file",
    ]  # fmt: skip


def test_a_folder_whose_replacement_was_interrupted_is_restored_when_it_is_loaded(tmp_path):
    fill(tmp_path / "best", "old")
    (tmp_path / "best").rename(tmp_path / ".best.old")
    assert locate(tmp_path / "best") == str(tmp_path / "best")
    assert (tmp_path / "best" / "b").read_text() == "old"
    assert not (tmp_path / ".best.old").exists()
    with pytest.raises(CheckpointError, match="there is no model"):
        locate("none")


def test_a_folder_that_cannot_be_replaced_is_kept(tmp_path, monkeypatch):
    rename = folders.rename

    def renaming(source, target):
        if target == tmp_path / "best" and source.name == "best":
            raise OSError("disk full")
        rename(source, target)

    fill(tmp_path / "best", "old")
    monkeypatch.setattr(folders, "rename", renaming)
    with pytest.raises(OSError, match="disk full"):
        fill(tmp_path / "best")
    assert (tmp_path / "best" / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_a_folder_is_locked_between_the_two_renames_so_that_no_other_process_restores_it(
    tmp_path, monkeypatch
):
    rename, locked = folders.rename, []

    def renaming(source, target):
        rename(source, target)
        if target == tmp_path / ".best.old":
            with folders._holding(target) as has_lock:
                locked.append(not has_lock)

    fill(tmp_path / "best", "old")
    monkeypatch.setattr(folders, "rename", renaming)
    fill(tmp_path / "best")
    assert locked == [True]
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
