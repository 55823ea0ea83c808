"""Size, speed and quality of an index of nuggets compared with all tokens, one vector and BM25."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.measuring import compare, record
from textnuggets import NuggetIndex, NuggetModel, load, maxsim
from textnuggets.evaluate.similarity import measure
from textnuggets.evaluate.tasks import Task
from textnuggets.model.token_encoder import load_token_encoder
from textnuggets.search.bm25 import BM25

K = 100


def index_of_passages(model: str, plain: str, task: Task, passages: list[str], source: str) -> None:
    """Measure size, build time, latency and nDCG@10 on a retrieval task's documents and additional passages."""
    documents = [*task.documents, *passages]
    with tempfile.TemporaryDirectory() as folder:
        rows = {
            "nuggets": _index(load(model), Path(folder) / "nuggets", documents, task),
            "all tokens": _index(load_token_encoder(plain), Path(folder) / "tokens", documents, task),
            "one vector": _one_vector(plain, documents, task),
            "bm25": _bm25(documents, task),
        }
    settings = {
        "documents": len(documents),
        "task": task.name,
        "passages": source,
        "queries": len(task.queries),
        "k": K,
    }
    ours, theirs = rows["nuggets"], rows["all tokens"]
    print(json.dumps(rows, indent=1))
    for name, key, target, claim in (
        ("index-size", "bytes", "<= 0.12", "the disk of an index of all tokens"),
        ("index-latency", "p50_ms", "<= 0.2", "the median latency of an index of all tokens"),
        ("index-quality", "ndcg", ">= 0.99", "the nDCG@10 of an index of all tokens"),
    ):
        record(name, claim, target, settings, {"ratio": round(ours[key] / theirs[key], 3), "rows": rows})


def _index(model: NuggetModel, place: Path, documents: list[str], task: Task) -> dict[str, Any]:
    ids = [str(i) for i in range(len(documents))]
    started = time.perf_counter()
    with NuggetIndex.create(place, model, store_text=False) as index:
        index.add(ids, documents, show_progress_bar=True)
        index.compact()
        seconds = time.perf_counter() - started
        found, times = [], []
        for query in task.queries:
            started = time.perf_counter()
            hits = index.search(query, K)
            times.append(time.perf_counter() - started)
            found.append([int(hit.id) for hit in hits])
        size = index.info()["bytes"]
    shutil.rmtree(place)
    return {"bytes": size, "build_seconds": round(seconds, 1), **_summary(found, times, task)}


def _one_vector(name: str, documents: list[str], task: Task) -> dict[str, Any]:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(name, device="cpu")
    started = time.perf_counter()
    vectors = model.encode(documents, normalize_embeddings=True, show_progress_bar=True)
    seconds = time.perf_counter() - started
    found, times = [], []
    for query in task.queries:
        started = time.perf_counter()
        scores = vectors @ model.encode([query], normalize_embeddings=True, show_progress_bar=False)[0]
        found.append(np.argsort(-scores)[:K].tolist())
        times.append(time.perf_counter() - started)
    size = len(documents) * vectors.shape[1] * 2  # as float16
    return {"bytes": size, "build_seconds": round(seconds, 1), **_summary(found, times, task)}


def _bm25(documents: list[str], task: Task) -> dict[str, Any]:
    started = time.perf_counter()
    engine = BM25(documents)
    seconds = time.perf_counter() - started
    found, times = [], []
    for query in task.queries:
        started = time.perf_counter()
        found.append(engine.nearest([query], K)[0].tolist())
        times.append(time.perf_counter() - started)
    return {"bytes": None, "build_seconds": round(seconds, 1), **_summary(found, times, task)}


def _summary(found: list[list[int]], times: list[float], task: Task) -> dict[str, float]:
    ndcg = measure(found, task.grades, ["nDCG@10"])["nDCG@10"].mean()
    return {
        "p50_ms": round(1000 * statistics.median(times), 2),
        "p95_ms": round(1000 * float(np.percentile(times, 95)), 2),
        "ndcg": round(100 * float(ndcg), 2),
    }


def maxsim_against_sentence_transformers(rounds: int) -> None:
    """Compare mean-MaxSim of one query with 1,000 candidates on the same arrays."""
    import torch
    from sentence_transformers.util.similarity import mean_maxsim

    random = np.random.default_rng(0)
    query = random.normal(size=(8, 384)).astype(np.float32)
    candidates = [random.normal(size=(int(n), 384)).astype(np.float32) for n in random.integers(5, 30, 1000)]
    query_tensor = torch.nn.functional.normalize(torch.from_numpy(query), dim=-1)
    tensors = [torch.nn.functional.normalize(torch.from_numpy(c), dim=-1) for c in candidates]
    result = compare(lambda: maxsim(query, candidates), lambda: mean_maxsim([query_tensor], tensors), rounds)
    record(
        "maxsim-vs-sentence-transformers",
        "the speed of sentence-transformers' mean-MaxSim on the same arrays",
        ">= 1.0",
        {"candidates": 1000, "query_vectors": 8, "dimensions": 384},
        result,
    )
