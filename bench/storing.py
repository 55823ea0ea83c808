"""python -m bench.storing TASK: measure what options of an index cost and gain, on a retrieval task.

The documents are encoded once. Indexes of all dtypes, with words and with a first stage, are then built from the same
vectors, compacted and searched with the queries of the task.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.measuring import record
from textnuggets import NuggetIndex, load
from textnuggets.evaluate.similarity import measure
from textnuggets.evaluate.tasks import Task, read_task
from textnuggets.io.documents import Document, raise_bad_line
from textnuggets.model.maxsim import unit
from textnuggets.model.nuggets import Nuggets
from textnuggets.model.parquet import iter_rows
from textnuggets.search.backends.base import Query
from textnuggets.search.bm25 import BM25
from textnuggets.search.manifest import BITS
from textnuggets.search.words import words_of_query
from textnuggets.search.writing import Row, to_rows, write_rows

K = 10
Vectors = list[np.ndarray]


def options_of_an_index(
    name: str, model_name: str, task: Task, encoded: Sequence[Nuggets] | None = None
) -> dict[str, Any]:
    """Measure and record nDCG@10, bytes and latency of indexes with different options.

    Args:
        name: Name of the task for the results file.
        model_name: Model that encodes documents and queries.
        task: Documents, queries and grades.
        encoded: Nuggets of the documents if they are already encoded.
    """
    model = load(model_name)
    known = list(encoded) if encoded is not None else model.encode(task.documents, show_progress_bar=True)
    queries: Vectors = []
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for dtype in reversed(BITS):  # int4 first
            with NuggetIndex.create(Path(folder) / dtype, model, dtype=dtype, store_text=False) as index:
                if not queries:
                    encoded_queries = model.encode(task.queries, ratio=index.manifest.query_ratio)
                    queries = [unit(item, "query") for item in encoded_queries]
                rows[dtype] = _measure(index, known, task, queries)
        staged = NuggetIndex.create(
            Path(folder) / "all", model, dtype="int4", store_text=False, words=True, first_stage=True
        )
        with staged as index:
            rows["int4, first stage"] = _measure(index, known, task, queries)
            rows["int4, hybrid"] = _search(index, task, queries, exact=True, hybrid=True)
    rows["bm25"] = {"ndcg": _ndcg(BM25(task.documents).nearest(task.queries, K).tolist(), task)}
    config = {"task": name, "model": model_name, "documents": len(known), "queries": len(queries), "k": K}
    ratio = round(rows["int4"]["ndcg"] / rows["float32"]["ndcg"], 4)
    claim = f"the nDCG@10 of vectors of float32 on {name}, of int4"
    record(f"index-options-{name}", claim, ">= 0.995", config, {"ratio": ratio, "rows": rows})
    return rows


def _measure(index: NuggetIndex, known: Sequence[Nuggets], task: Task, queries: Vectors) -> dict[str, Any]:
    documents = [Document(str(i), text) for i, text in enumerate(task.documents)]

    def encode(batch: list[Row]) -> list[Nuggets]:
        return [known[int(row.document.id)] for row in batch]

    write_rows(index._backend, to_rows(documents, raise_bad_line), encode, False, raise_bad_line)
    index.compact()
    info = index.info()
    sizes = {key: info[key] for key in ("vectors", "vector_bytes", "bytes", "bytes_per_token")}
    return {**sizes, **_search(index, task, queries)}


def _search(
    index: NuggetIndex, task: Task, queries: Vectors, exact: bool = False, hybrid: bool = False
) -> dict[str, Any]:
    found, times = [], []
    for text, vectors in zip(task.queries, queries, strict=True):
        query = Query(vectors, words=words_of_query(text) if hybrid else None, exact=exact)
        started = time.perf_counter()
        hits = index._backend.engine.find(query, K)
        times.append(time.perf_counter() - started)
        found.append([int(hit.document.id) for hit in hits])
    return {"ndcg": _ndcg(found, task), "p50_ms": round(1000 * float(np.median(times)), 2)}


def _ndcg(found: Sequence[Sequence[int]], task: Task) -> float:
    return round(100 * float(measure(found, task.grades, ["nDCG@10"])["nDCG@10"].mean()), 2)


def main() -> None:
    """Measure one task."""
    parser = argparse.ArgumentParser(prog="python -m bench.storing", description=__doc__)
    parser.add_argument("task", help="the folder of a retrieval task")
    parser.add_argument("--model", default="search")
    parser.add_argument("--grades", help="mapping of the task's grades, such as 1=4,2=3,3=2,4=1")
    parser.add_argument(
        "--encoded",
        help="folder of Parquet files from `textnuggets encode`, with the documents' numbers as ids",
    )
    chosen = parser.parse_args()
    meaning = None
    if chosen.grades:
        meaning = {int(old): int(new) for old, new in (part.split("=") for part in chosen.grades.split(","))}
    encoded = None
    if chosen.encoded:
        parts = [row for file in sorted(Path(chosen.encoded).glob("*.parquet")) for row in iter_rows(file)]
        encoded = [nuggets for _, nuggets, _ in sorted(parts, key=lambda row: int(row[0]))]
    task = read_task(chosen.task, grades=meaning)
    rows = options_of_an_index(Path(chosen.task).name, chosen.model, task, encoded)
    for label, row in rows.items():
        print(label, row)


if __name__ == "__main__":
    main()
