"""A slice of the fuzzer of `bench/fuzzing`, and what its oracle notices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.fuzzing import oracle
from bench.fuzzing.cases import draw
from bench.fuzzing.oracle import Done, Snapshot, call, find_traceback
from bench.fuzzing.results import is_finite
from bench.fuzzing.run import Fuzzer
from bench.fuzzing.world import Stored

# Another seed than that of the 10,000 cases in docs/benchmarks.md.
SEED, CASES = 2, range(40)


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory):
    before = Path.cwd()
    yield Fuzzer(tmp_path_factory.mktemp("world"))
    os.chdir(before)


@pytest.mark.filterwarnings("default")
def test_damaged_inputs_give_no_traceback_no_silent_difference_and_no_lost_file(fuzzer):
    outcomes = list(fuzzer.run(SEED, CASES))
    assert [outcome for outcome in outcomes if not outcome.is_sound] == []
    assert {outcome.code for outcome in outcomes} == {0, 2}


def test_a_seed_and_a_number_always_give_the_same_case(fuzzer):
    for number in range(50):
        first, second = draw(fuzzer.world, 7, number), draw(fuzzer.world, 7, number)
        assert (first.summary, first.files) == (second.summary, second.files)
    assert len({draw(fuzzer.world, 7, number).summary for number in range(50)}) > 45


@pytest.mark.parametrize(
    ("done", "wrong"),
    [
        (Done(0, "", "warning: x\nout: 5 texts"), None),
        (Done(2, "", "skipped: x\nerror: t.txt: no such file."), None),
        (Done(1, "", "error: disk full"), "code 1"),
        (Done(None, "", "", "KeyError at cli/encode.py:3"), "KeyError"),
        (Done(2, "", "error: a\nerror: b"), "not the only error"),
        (Done(2, "", "error: a\nmore"), "not the only error"),
        (Done(2, "", "error: "), "says nothing"),
        (Done(0, "", "Traceback (most recent call last):\n  File"), "Traceback"),
        (Done(2, "", "thread 'x' panicked at src/a.rs\nerror: a"), "panicked"),
    ],
)
def test_any_end_but_code_0_or_one_line_and_code_2_is_a_traceback(done, wrong):
    found = find_traceback(done)
    assert found is None if wrong is None else wrong in found


def test_exceptions_exit_codes_and_hangs_of_a_command_are_noticed(monkeypatch):
    def replace_main(action):
        monkeypatch.setattr(oracle, "main", action)
        return call(["x"], limit=0.2)

    def hang():
        while True:
            pass

    def fail():
        raise KeyError("a")

    assert replace_main(lambda: exit(3)).code == 3
    assert replace_main(fail).cause.startswith("KeyError")
    assert replace_main(hang).cause.startswith("HangError")
    assert replace_main(lambda: os.write(2, b"native")).error == "native"


def test_a_file_that_is_gone_or_changed_is_lost(tmp_path):
    files = [tmp_path / name for name in ("same", "changed", "gone")]
    for file in files:
        file.write_text("x")
    (tmp_path / "engine-1").mkdir()
    snapshot = Snapshot.take(files, [tmp_path / "engine-1"])
    assert snapshot.find_lost() == []
    files[1].write_text("y")
    files[2].unlink()
    (tmp_path / "engine-1").rmdir()
    assert [line.rpartition("/")[2] for line in snapshot.find_lost()] == [
        "gone gone",
        "engine-1 gone",
        "changed changed",
    ]


def test_another_result_of_a_protected_file_is_a_silent_difference(fuzzer, monkeypatch):
    case = next(c for c in (draw(fuzzer.world, 3, n) for n in range(500)) if c.scene.protected == "pages")
    case.files = {path: fuzzer.world.files[path] for path in case.files}  # no damage
    assert fuzzer.judge(case).is_sound
    expected = fuzzer._expected[case.scene]
    monkeypatch.setitem(fuzzer._expected, case.scene, (0, [*expected[1], "another line"]))
    assert "another result" in fuzzer.judge(case).difference


def test_numbers_of_a_result_must_be_finite():
    assert is_finite([{"score": 1.5, "text": "nan"}, [None, 3]])
    assert not is_finite([{"score": [float("nan")]}])
    assert not is_finite({"a": float("-inf")})


def test_a_large_file_is_stored_without_its_empty_blocks(tmp_path):
    path, copy = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"\0" * 500_000 + b"x" + b"\0" * 500_000)
    stored = Stored.read(path)
    assert stored.is_sparse
    assert sum(len(block) for _, block in stored.blocks) < 10_000
    stored.write(copy)
    assert copy.read_bytes() == path.read_bytes()
