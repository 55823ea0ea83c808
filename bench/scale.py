"""python -m bench.scale: build a large index of repeated vectors, and measure its size, speed, memory and recall.

With --encoded, passages repeat those of Parquet files by `textnuggets encode`, each vector turned by random noise; otherwise
vectors are random, around a topic for each passage. A query has noisy vectors of one passage. No text is stored, so that
sizes are those of vectors, positions and ids.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.measuring import record
from textnuggets import NuggetIndex, load
from textnuggets.io.documents import Document, raise_bad_line
from textnuggets.model.nuggets import Nuggets
from textnuggets.model.parquet import iter_rows
from textnuggets.search.backends.base import Query
from textnuggets.search.writing import Row, to_rows, write_rows

K, QUERIES = 10, 200
NOISE, QUERY_NOISE = 0.5, 1.0  # lengths of what is added to vectors of length 1
SIZE, TOKENS = 12, 15  # vectors of a random passage, and tokens for each


def passages(encoded: str | None, dimensions: int) -> list[Nuggets]:
    """Return the nuggets that are repeated, with vectors of length 1."""
    if encoded is not None:
        found = [
            nuggets for file in sorted(Path(encoded).glob("*.parquet")) for _, nuggets, _ in iter_rows(file)
        ]
        return [_with_vectors(item, item.vectors) for item in found]
    draw = np.random.default_rng(1)
    topics = draw.normal(size=(10_000, 1, dimensions)).astype(np.float32)
    ends = np.arange(1, SIZE + 1)
    same = Nuggets(
        vectors=np.ones((SIZE, dimensions), np.float32),
        scores=np.zeros(SIZE, np.float32),
        positions=ends * TOKENS - 1,
        spans=np.stack([ends * 70 - 5, ends * 70], axis=1),
        tokens=("",) * SIZE,
        windows=np.array([[SIZE, SIZE * TOKENS, 0, SIZE * 70]]),
    )
    return [
        _with_vectors(same, topic + draw.normal(size=(SIZE, dimensions)).astype(np.float32))
        for topic in topics
    ]


def repeated(number: int, sources: list[Nuggets]) -> Nuggets:
    """Return the passage of a number: one of the sources, turned by its own noise after the first round."""
    source = sources[number % len(sources)]
    if number < len(sources):
        return source
    return _with_vectors(source, source.vectors + _noise(source.vectors.shape, [2, number], NOISE))


def query_of(number: int, count: int, sources: list[Nuggets]) -> np.ndarray:
    """Return up to four noisy vectors of some passage."""
    draw = np.random.default_rng([3, number])
    vectors = repeated(int(draw.integers(count)), sources).vectors
    chosen = vectors[draw.permutation(len(vectors))[:4]]
    return _unit(chosen + _noise(chosen.shape, [4, number], QUERY_NOISE))


def _noise(shape: tuple[int, ...], seed: list[int], length: float) -> np.ndarray:
    return length * _unit(np.random.default_rng(seed).standard_normal(shape, np.float32))


def _unit(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def _with_vectors(nuggets: Nuggets, vectors: np.ndarray) -> Nuggets:
    return Nuggets(
        _unit(vectors), nuggets.scores, nuggets.positions, nuggets.spans, nuggets.tokens, nuggets.windows
    )


def build(place: str, count: int, sources: list[Nuggets], dtype: str) -> dict[str, Any]:
    """Build and compact an index with a first stage, and return its sizes and rates."""

    def documents() -> Iterator[Document]:
        for number in range(count):
            yield Document(str(number), f"passage {number}")

    def encode(batch: list[Row]) -> list[Nuggets]:
        return [repeated(int(row.document.id), sources) for row in batch]

    with NuggetIndex.create(place, load("search"), dtype=dtype, store_text=False, first_stage=True) as index:
        started = time.perf_counter()
        write_rows(index._backend, to_rows(documents(), raise_bad_line), encode, True, raise_bad_line)
        written = time.perf_counter()
        index.compact(show_progress_bar=True)
        info = index.info()
    sizes = {
        key: info[key]
        for key in ("documents", "vectors", "tokens", "vector_bytes", "bytes", "bytes_per_token")
    }
    return {
        **sizes,
        "bytes_per_vector": round(info["bytes"] / info["vectors"], 1),
        "written_per_second": round(count / (written - started), 1),
        "compacting_seconds": round(time.perf_counter() - written, 1),
    }


def search(place: str, encoded: str | None) -> dict[str, Any]:
    """Search an index in both ways, and return latencies, resident memory and the recall of two stages."""
    before = _resident()
    with NuggetIndex.open(place, read_only=True) as index:
        engine, count = index._backend.engine, len(index)
        opened = _resident()
        sources = passages(encoded, index.manifest.dimensions)
        queries = [query_of(number, count, sources) for number in range(QUERIES)]
        before += _resident() - opened  # what the queries need is not the index's
        found: dict[str, Any] = {}
        for name, exact in (("two stages", False), ("exact", True)):
            hits, times = [], []
            for query in queries if not exact else queries[: QUERIES // 4]:
                started = time.perf_counter()
                hits.append({hit.document.id for hit in engine.find(Query(query, exact=exact), K)})
                times.append(1000 * (time.perf_counter() - started))
            found[name] = {
                "first_ms": round(times[0], 1),
                "p50_ms": round(float(np.median(times[1:])), 1),
                "p95_ms": round(float(np.percentile(times[1:], 95)), 1),
                "resident_bytes": _resident() - before,
                "hits": hits,
            }
    two, all_of_them = (row.pop("hits") for row in found.values())
    pairs = zip(two, all_of_them, strict=False)  # exact searches are fewer
    found["recall"] = round(float(np.mean([len(a & b) / len(b) for a, b in pairs])), 4)
    return found


def _resident() -> int:
    """Return the resident memory of this process, with the parts of files that are mapped and in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def main() -> None:
    """Build in this process, and search in another, whose memory is that of searching."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--passages", type=int, default=400_000)
    parser.add_argument("--encoded", help="folder of Parquet files by `textnuggets encode`")
    parser.add_argument("--dtype", default="int4")
    parser.add_argument("--folder", help="folder for the index; a temporary one by default")
    parser.add_argument("--search", metavar="INDEX", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.search:
        print(json.dumps(search(chosen.search, chosen.encoded)))
        return
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        place = str(Path(folder) / "index")
        sources = passages(chosen.encoded, load("search").dim)
        built = build(place, chosen.passages, sources, chosen.dtype)
        command = [sys.executable, "-m", "bench.scale", "--search", place]
        command += ["--encoded", chosen.encoded] if chosen.encoded else []
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    searched = json.loads(done.stdout.splitlines()[-1])
    config = {
        "passages": chosen.passages,
        "sources": len(sources),
        "real": chosen.encoded is not None,
        "dtype": chosen.dtype,
        "k": K,
        "queries": QUERIES,
    }
    result = {"ratio": searched["recall"], **built, **searched}
    print(json.dumps(result, indent=1))
    claim = f"the first {K} hits of exact search among {chosen.passages:,} passages, found by two stages"
    record(f"index-scale-{chosen.passages}", claim, ">= 0.98", config, result)


if __name__ == "__main__":
    main()
