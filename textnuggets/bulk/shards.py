"""Encoding of many files into one Parquet file each, in this process or on a Ray cluster.

Every shard is encoded by `encode_to_parquet`, so the result does not depend on where it runs. A repeated run skips
finished shards and resumes interrupted ones.
"""

from __future__ import annotations

import glob
import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from textnuggets.analysis.fidelity import find_shortfall
from textnuggets.bulk.encode import encode_to_parquet
from textnuggets.errors import InputError, MissingExtraError, TextnuggetsError, TextnuggetsWarning
from textnuggets.io.disk import make_folder
from textnuggets.io.documents import raise_bad_line, read_documents
from textnuggets.io.files import check_not_read
from textnuggets.io.progress import Progress
from textnuggets.model.coverage import Coverage
from textnuggets.model.fingerprint import lasting_name
from textnuggets.model.interface import TextInterface
from textnuggets.onnx.load import load_encoder

KINDS = (".txt", ".jsonl", ".parquet", ".txt.gz", ".jsonl.gz")
Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class Settings:
    """Encoding settings, the same for every shard."""

    model: str | None
    ratio: float | None = None
    dtype: str = "float32"
    batch_size: int = 32
    with_text: bool = False
    fidelity: float | None = None
    skip_bad: bool = False


class Finished(NamedTuple):
    """Outcome of encoding a shard."""

    shard: str
    rows: int
    skipped: list[str]
    """Errors of the bad lines that were skipped."""
    error: str | None
    """Error message if the shard failed."""
    coverage: Coverage
    """Languages and characters of the shard that the model does not know."""


def find_shards(pattern: str) -> list[Path]:
    """Return the text files of a folder or of a pattern such as 'shards/*.jsonl'."""
    folder = Path(pattern)
    names = (
        sorted(folder.iterdir()) if folder.is_dir() else [Path(name) for name in sorted(glob.glob(pattern))]  # noqa: PTH207  the pattern may be absolute
    )
    shards = [path for path in names if path.is_file() and path.name.endswith(KINDS)]
    if not shards:
        raise InputError(f"{pattern}: no {', '.join(KINDS)} file found.")
    return shards


def output_of(shard: Path, out: Path) -> Path:
    """Return the path of the Parquet file of a shard."""
    return out / f"{shard.name.removesuffix('.gz').rpartition('.')[0]}.parquet"


def encode_shards(
    shards: Sequence[Path],
    out: Path,
    settings: Settings,
    engine: Engine = "local",
    workers: int = 1,
    address: str | None = None,
) -> list[Finished]:
    """Encode every shard into a file in `out` and return the outcomes; a failed shard does not stop the others.

    Args:
        shards: Text files.
        out: Folder for the Parquet files.
        settings: Encoding settings.
        engine: `local` to encode one shard after the other, or `ray`.
        workers: Number of Ray workers; each loads the model.
        address: Address of a Ray cluster; by default a local one is started.
    """
    outputs = [output_of(shard, out) for shard in shards]
    if twice := {path.name for path in outputs if outputs.count(path) > 1}:
        raise InputError(f"several shards would be written to {out / min(twice)}: rename them.")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: several shards need an output folder.")
    check_not_read(outputs, [*shards, settings.model])
    make_folder(out)
    jobs = [
        {"shard": str(a.resolve()), "out": str(b.resolve())} for a, b in zip(shards, outputs, strict=True)
    ]
    run = _local(jobs, settings) if engine == "local" else _ray(jobs, settings, workers, address)
    found: list[Finished] = []
    with Progress("shards", len(jobs)) as progress:
        for item in run:
            found.append(item)
            progress.add(1)
            for line in item.skipped:
                print(f"skipped: {line}", file=sys.stderr)
            if item.error is not None:
                print(f"failed: {item.error}", file=sys.stderr)
    _warn(found, outputs, settings.fidelity)
    return found


def _warn(found: Sequence[Finished], outputs: Sequence[Path], fidelity: float | None) -> None:
    """Warn once for all shards about unknown languages or characters and missed fidelity."""
    coverage = Coverage()
    for item in found:
        coverage.merge(item.coverage)
    coverage.warn(stacklevel=3)
    whole = [path for path in outputs if path.is_file()]
    if fidelity is not None and (shortfall := find_shortfall(whole, fidelity)) is not None:
        warnings.warn(shortfall.message(), TextnuggetsWarning, stacklevel=3)


def _local(jobs: Sequence[dict[str, str]], settings: Settings) -> Iterator[Finished]:
    encoder = ShardEncoder(asdict(settings))
    for job in jobs:
        yield encoder.encode(job)


class ShardEncoder:
    """Encoder of shards with a loaded model; Ray keeps one per worker."""

    def __init__(self, settings: dict[str, Any], loaded: Callable[..., TextInterface] = load_encoder) -> None:
        self.settings = Settings(**settings)
        self.model = loaded(self.settings.model)

    def encode(self, job: dict[str, str]) -> Finished:
        """Encode one shard; a TextnuggetsError is returned in the outcome instead of raised."""
        skipped: list[str] = []
        coverage = Coverage()

        def report(error: InputError) -> None:
            skipped.append(str(error))

        settings = self.settings
        try:
            rows = encode_to_parquet(
                self.model,
                read_documents(job["shard"], report if settings.skip_bad else raise_bad_line),
                Path(job["out"]),
                name=lasting_name(settings.model),
                ratio=settings.ratio,
                dtype=settings.dtype,
                batch_size=settings.batch_size,
                with_text=settings.with_text,
                fidelity=settings.fidelity,
                resume=True,
                coverage=coverage,
            )
        except TextnuggetsError as error:
            return Finished(job["shard"], 0, skipped, str(error), coverage)
        return Finished(job["shard"], rows, skipped, None, coverage)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Encode a batch of jobs for Ray Data, which passes and expects columns."""
        names = list(batch)
        jobs = [{name: str(batch[name][i]) for name in names} for i in range(len(batch[names[0]]))]
        done = [self.encode(job) for job in jobs]
        return {
            "shard": [item.shard for item in done],
            "rows": [item.rows for item in done],
            "skipped": ["\n".join(item.skipped) for item in done],
            "error": [item.error or "" for item in done],
            "coverage": [json.dumps(item.coverage.as_dict()) for item in done],
        }


def _ray(
    jobs: Sequence[dict[str, str]], settings: Settings, workers: int, address: str | None
) -> Iterator[Finished]:
    """Distribute the shards with Ray Data; the shard of a dead worker is resumed by its replacement."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtraError("ray", "ray", "--engine ray") from error
    started = not ray.is_initialized()
    if started:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # `encode_shards` shows progress itself
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        data = ray.data.from_items(list(jobs), override_num_blocks=len(jobs)).map_batches(
            ShardEncoder,
            fn_constructor_args=(asdict(settings),),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=min(workers, len(jobs))),
        )
        for row in data.iter_rows():
            skipped = row["skipped"].split("\n") if row["skipped"] else []
            coverage = Coverage(**json.loads(row["coverage"]))
            yield Finished(row["shard"], row["rows"], skipped, row["error"] or None, coverage)
    finally:
        if started:
            ray.shutdown()
