"""Run cases and count what went wrong."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import uvicorn

from bench.fuzzing.cases import Case, draw
from bench.fuzzing.oracle import Done, Snapshot, call, find_traceback
from bench.fuzzing.results import is_finite, read_result
from bench.fuzzing.scenes import SCENES, Scene
from bench.fuzzing.world import BYSTANDERS, World
from bench.measuring import record
from textnuggets.report import reproduce

LIMIT = 30.0  # seconds for one command
MEMORY = 6 << 30  # bytes that a case may allocate beyond what is in use at the start
OLD = b"an older output\n"
BATCH = 500  # cases in one process


@dataclass
class Outcome:
    """What a case showed."""

    number: int
    command: str
    note: str
    code: int | None
    traceback: str | None = None
    difference: str | None = None
    lost: list[str] | None = None

    @property
    def is_sound(self) -> bool:
        """Whether nothing went wrong."""
        return not (self.traceback or self.difference or self.lost)


class Fuzzer:
    """Runs cases in one world."""

    def __init__(self, root: Path) -> None:
        with harmless():
            self.world = World(root)
        self._expected: dict[Scene, tuple[int | None, list[Any]]] = {}

    def run(
        self, seed: int, numbers: Iterable[int], announce: Callable[[Outcome], None] | None = None
    ) -> Iterator[Outcome]:
        """Yield the outcome of every case; `announce` gets it before the case runs, as if nothing was known."""
        with harmless(), limited_memory():
            for number in numbers:
                case = draw(self.world, seed, number)
                if announce:
                    announce(Outcome(number, case.scene.name, case.summary, None))
                yield self.judge(case)

    def judge(self, case: Case) -> Outcome:
        """Run a case and return what it showed."""
        scene, here = case.scene, self.world.here
        self._write(case)
        files = [
            here / path
            for path in case.files
            if not scene.in_place or not path.startswith(scene.in_place + "/")
        ]
        files += [self.world.root / name for name in BYSTANDERS] + [here / name for name in case.guests]
        kept = [path for pattern in scene.kept for path in (here / scene.in_place).glob(pattern)]
        snapshot = Snapshot.take(files, kept)
        done = self._call(case)
        outcome = Outcome(case.number, scene.name, case.summary, done.code)
        outcome.traceback = find_traceback(done)
        outcome.lost = snapshot.find_lost() or None
        if case.old is not None and done.code != 0 and (here / case.old).read_bytes() != OLD:
            outcome.lost = [*(outcome.lost or []), f"{case.old} changed by a command that failed"]
        outcome.difference = self._difference(case, done)
        return outcome

    def _write(self, case: Case) -> None:
        self.world.clear()
        for path, stored in case.files.items():
            stored.write(self.world.here / path)
        for name in case.guests:
            guest = self.world.here / name
            guest.parent.mkdir(parents=True, exist_ok=True)
            guest.write_text("of others\n")
        if case.old is not None:
            (self.world.here / case.old).write_bytes(OLD)

    def _call(self, case: Case) -> Done:
        stdin = (
            b"".join(block for _, block in case.files[case.scene.stdin].blocks)
            if case.scene.stdin in case.files
            else b""
        )
        if case.scene.before:
            checked = call(case.scene.before.split(), limit=LIMIT)
            if checked.code != 0:
                return checked
        return call(case.arguments, stdin, LIMIT)

    def _result(self, scene: Scene, done: Done) -> list[Any]:
        here = self.world.here
        files = (path for path in sorted(here.rglob("*")) if path.is_file())
        names = (path.relative_to(here) for path in files)
        return read_result(
            done.out, [n for n in names if any(fnmatchcase(n.as_posix(), p) for p in scene.result)]
        )

    def _difference(self, case: Case, done: Done) -> str | None:
        if done.code != 0:
            return f"refused: {done.error[-200:]}" if case.is_neutral and done.code == 2 else None
        result = self._result(case.scene, done)
        if not is_finite(result):
            return "the result has NaN or infinite numbers"
        if not (case.is_neutral or case.scene.protected):
            return None
        code, expected = self._without_damage(case.scene)
        assert code == 0, f"{case.scene.command} fails without damage"
        if result == expected:
            return None
        what = "bytes without a meaning" if case.is_neutral else "protected files"
        first = next(
            (pair for pair in zip(result, expected, strict=False) if pair[0] != pair[1]),
            (len(result), len(expected)),
        )
        return f"another result after a change of {what}: {str(first)[:200]}"

    def _without_damage(self, scene: Scene) -> tuple[int | None, list[Any]]:
        if scene not in self._expected:
            files = {
                path: self.world.files[path]
                for name in scene.inputs(self.world)
                for path in self.world.below(name)
            }
            case = Case(0, 0, scene, scene.arguments, "", files)
            self._write(case)
            done = self._call(case)
            self._expected[scene] = done.code, self._result(scene, done)
        return self._expected[scene]


@contextmanager
def harmless() -> Iterator[None]:
    """Keep commands away from the network and other processes: a server ends at once, steps of a plan fail."""
    steps = SimpleNamespace(run=lambda *_, **__: SimpleNamespace(returncode=1), DEVNULL=subprocess.DEVNULL)
    with (
        patch.dict(os.environ, {"NO_COLOR": "1"}),
        patch.object(uvicorn.Server, "run", lambda *_: None),
        patch.object(reproduce, "subprocess", steps),
    ):
        yield


@contextmanager
def limited_memory() -> Iterator[None]:
    """Limit the memory, so that a huge number in a file ends one case instead of the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def run_isolated(seed: int, numbers: range, workers: int = 2) -> Iterator[Outcome]:
    """Run cases in batches, each in its own process; a case that ends the process is a traceback."""
    batches = [numbers[first : first + BATCH] for first in range(0, len(numbers), BATCH)]
    with ThreadPoolExecutor(workers) as pool:
        for outcomes in pool.map(lambda batch: list(_run_batch(seed, batch)), batches):
            yield from outcomes


def _run_batch(seed: int, numbers: range) -> Iterator[Outcome]:
    module = [sys.executable, "-m", "bench.fuzzing", "--json", "--seed", str(seed), "--cases"]
    while numbers:
        command = [*module, f"{numbers.start}:{numbers.stop}"]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
        )
        # Two lines for each case, before and after it; native code may write others.
        found = [line for line in done.stdout.splitlines() if line.startswith("{")]
        lines = [Outcome(**json.loads(line)) for line in found]
        yield from lines[1::2]
        numbers = numbers[len(lines[1::2]) :]
        if len(lines) % 2:
            yield replace(lines[-1], traceback=f"the process ended with code {done.returncode}")
            numbers = numbers[1:]
        elif numbers:
            raise RuntimeError(f"the fuzzer itself failed: run it with --case {numbers.start}")


def summarize(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return the counts of all cases and by command."""
    rows: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        row = rows.setdefault(outcome.command, Counter())
        row["cases"] += 1
        row["refused"] += outcome.code == 2
        row["tracebacks"] += outcome.traceback is not None
        row["silent_differences"] += outcome.difference is not None
        row["lost_files"] += outcome.lost is not None
    total: Counter[str] = Counter()
    for row in rows.values():
        total.update(row)
    return {**total, "rows": {name: dict(row) for name, row in sorted(rows.items())}}


def fuzz_inputs(cases: int = 10_000, seed: int = 1) -> None:
    """Run all cases and record what they showed."""
    started = time.perf_counter()
    outcomes = []
    for outcome in run_isolated(seed, range(cases)):
        outcomes.append(outcome)
        if not outcome.is_sound:
            print(outcome, flush=True)
    found = summarize(outcomes)
    sound = sum(outcome.is_sound for outcome in outcomes)
    record(
        "input-fuzz",
        "the share of damaged inputs and options without a traceback, a silent difference or a lost file",
        "1",
        {"seed": seed, "seconds_for_a_command": LIMIT, "scenes": len(SCENES)},
        {"ratio": round(sound / cases, 4), "seconds": round(time.perf_counter() - started), **found},
    )


def run_here(seed: int, numbers: range, as_json: bool) -> None:
    """Run cases in this process and print what they showed."""
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(Path(folder))
        started = time.perf_counter()
        for outcome in fuzzer.run(seed, numbers, _print if as_json else None):
            if as_json:
                _print(outcome)
            elif not outcome.is_sound or len(numbers) == 1:
                print(outcome, flush=True)
        os.chdir("/")
    print(f"{len(numbers)} cases in {time.perf_counter() - started:.1f} s", file=sys.stderr)


def _print(outcome: Outcome) -> None:
    print(json.dumps(asdict(outcome)), flush=True)
