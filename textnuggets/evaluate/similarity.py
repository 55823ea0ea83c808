"""Comparison of systems on one retrieval or reranking task (section 6.1 of the paper).

Candidates are shuffled and ties count against the system, so that only scores can help it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import InputError, MissingExtraError
from textnuggets.evaluate.provenance import software
from textnuggets.evaluate.stats import SAMPLES, bootstrap
from textnuggets.evaluate.systems import System, check_systems, make_system, split_label
from textnuggets.evaluate.tasks import Task
from textnuggets.io.progress import Progress
from textnuggets.model.maxsim import SIMILARITIES

MEASURES = {"reranking": ("RR", "Success@1"), "retrieval": ("nDCG@10", "R@100", "RR")}
NAMES = {"RR": "MRR", "Success@1": "accuracy", "R@100": "Recall@100"}


def evaluate_similarity(
    systems: Sequence[str],
    task: Task,
    similarity: str = "maxsim",
    query_ratio: float | None = None,
    baseline: str | None = None,
    seed: int = 0,
    earlier: dict[str, Any] | None = None,
    keep: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Rank a task's documents with every system.

    Args:
        systems: Names in the syntax of `textnuggets.evaluate.systems`.
        task: Task from `read_task`.
        similarity: Similarity of two sets of vectors: maxsim, symmetric or matching.
        query_ratio: Ratio for queries; default: see `make_system`.
        baseline: System that every other one is compared with, query by query; default: none.
        seed: Seed of the bootstrap; the order of candidates has the seed of `read_task`.
        earlier: Earlier results on the same task; systems with the same weights are not measured again.
        keep: Called with the results so far after every system.
    """
    if similarity not in SIMILARITIES:
        raise InputError(f"similarity must be one of {', '.join(SIMILARITIES)}; got {similarity!r}.")
    check_systems(systems)
    labels = [split_label(name)[0] for name in systems]
    if twice := {label for label in labels if labels.count(label) > 1}:
        raise InputError(f"{min(twice)!r} is named twice: write LABEL=MODEL to distinguish them.")
    if baseline is not None and baseline not in labels:
        raise InputError(f"no system {baseline!r} to compare with; choose one of {', '.join(labels)}.")
    rows: list[dict[str, Any]] = []
    results: dict[str, Any] = {
        "question": "similarity",
        "settings": {
            "similarity": similarity,
            "query_ratio": query_ratio,
            "against": baseline,
            "task": task.name,
            "kind": task.kind,
            "samples": SAMPLES,
            **task.reading,
        },
        "data": [{"source": task.name, "sha256": task.sha256}],
        "seed": seed,
        **software("ir-measures", "bm25s"),
        "queries": len(task.queries),
        "documents": len(task.documents),
        "results": rows,
    }
    known = {} if earlier is None else _rows_to_keep(earlier, results)
    for name in systems:
        system = make_system(name, SIMILARITIES[similarity], query_ratio)
        system.prepare(
            task.documents, next((row["bytes"] for row in rows if row["method"] == "nuggets"), None)
        )
        row = known.get(system.name)
        same = row is not None and all(row.get(key) == value for key, value in system.describe().items())
        rows.append(row if row is not None and same else _measure_system(system, task, seed))
        if baseline in [done["system"] for done in rows]:
            _compare(rows, str(baseline), seed)
        if keep is not None:
            done = {row["system"] for row in rows}
            keep({**results, "results": [*rows, *(row for label, row in known.items() if label not in done)]})
    return results


def _measure_system(system: System, task: Task, seed: int) -> dict[str, Any]:
    """Return one row of the results."""
    scores = system.read(task.queries, task.documents)
    found = []
    with Progress(f"rank by {system.name}", len(task.queries)) as progress:
        for query, (candidates, grades) in enumerate(zip(task.candidates, task.grades, strict=True)):
            found.append(rank(scores(query, candidates), candidates, grades))
            progress.add(1)
    measured = measure(found, task.grades, MEASURES[task.kind])
    return {
        "system": system.name,
        "vectors": system.vectors,
        "bytes": system.bytes,
        **system.describe(),
        "measures": {key: interval(values, seed) for key, values in measured.items()},
        "by_query": {key: values.round(4).tolist() for key, values in measured.items()},
    }


def _rows_to_keep(earlier: dict[str, Any], results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the earlier rows by system; raise InputError if task or settings differ."""

    def conditions(found: dict[str, Any]) -> dict[str, Any]:
        settings = {key: value for key, value in found["settings"].items() if key != "against"}
        data = {key: found[key] for key in ("data", "seed", "queries", "documents")}
        return json.loads(json.dumps({**settings, **data}))  # normalized as in a file

    try:
        before, now = conditions(earlier), conditions(results)
        rows = {
            row["system"]: {k: v for k, v in row.items() if k != "difference"} for row in earlier["results"]
        }
        for row in rows.values():
            _check_row(row, results["queries"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"the earlier results are not results of 'similarity' ({error!r}).") from error
    for key, value in now.items():
        if before.get(key) != value:
            raise InputError(
                f"the earlier results have other settings: {key} was {before.get(key)!r} and is now {value!r}. "
                "Write to another folder."
            )
    return rows


def _check_row(row: dict[str, Any], queries: int) -> None:
    """Raise an error of any type if a row read from a file has another shape than `_measure_system` gives it."""
    sizes = [row[key] for key in ("vectors", "words") if row.get(key) is not None]
    sizes += [row["bytes"]] if "bytes" in row else []
    numbers = [measure[key] for measure in row["measures"].values() for key in ("mean", "low", "high")]
    by_query = [row["by_query"][key] for key in row["measures"]]
    if not np.isfinite(np.array([*sizes, *numbers], dtype=np.float64)).all():
        raise ValueError("a number is not finite")
    if np.array(by_query, dtype=np.float64).shape != (len(row["measures"]), queries):
        raise ValueError("not one value for each query")


def _compare(rows: list[dict[str, Any]], baseline: str, seed: int) -> None:
    """Add to the rows the paired difference of every system from the baseline, query by query."""
    other = next(row for row in rows if row["system"] == baseline)
    for row in rows:
        if row is not other:
            row["difference"] = {
                key: interval(np.array(values) - np.array(other["by_query"][key]), seed)
                for key, values in row["by_query"].items()
            }


def rank(scores: NDArray[np.floating], candidates: Sequence[int], grades: dict[int, int]) -> list[int]:
    """Return the candidates, best first; among equal scores, the better grade comes last."""
    if not np.isfinite(scores).all():
        raise InputError("a similarity is not a finite number: the model's vectors hold NaN or infinity.")
    worth = np.array([grades.get(candidate, 0) for candidate in candidates])
    order = np.lexsort((worth, -np.asarray(scores, dtype=np.float64)))
    return [candidates[i] for i in order]


def measure(
    rankings: Sequence[Sequence[int]], grades: Sequence[dict[int, int]], names: Sequence[str]
) -> dict[str, NDArray[np.float64]]:
    """Return `(queries,)` values of every measure, computed by `ir_measures`."""
    try:
        import ir_measures
    except ImportError as error:
        raise MissingExtraError("ir-measures", "evaluate", "a ranking measure") from error
    qrels = {str(q): {str(d): grade for d, grade in judged.items()} for q, judged in enumerate(grades)}
    run = {
        str(q): {str(d): float(len(ranking) - place) for place, d in enumerate(ranking)}
        for q, ranking in enumerate(rankings)
    }
    measures = {ir_measures.parse_measure(name): name for name in names}
    values = {name: np.zeros(len(rankings)) for name in names}
    for metric in ir_measures.iter_calc(list(measures), qrels, run):
        values[measures[metric.measure]][int(metric.query_id)] = metric.value
    return values


def interval(values: NDArray[np.float64], seed: int) -> dict[str, float]:
    """Return the mean in percent, with its bootstrap interval over queries."""
    low, high = bootstrap(values, lambda drawn: drawn.mean(1), seed)
    return {"mean": 100 * float(values.mean()), "low": 100 * low, "high": 100 * high}


def to_markdown(results: dict[str, Any]) -> str:
    """Format all systems as one Markdown table."""
    names = list(results["results"][0]["measures"])
    heads = [NAMES.get(name, name) for name in names]
    against = results["settings"]["against"]
    if against is not None:
        heads.append(f"{heads[0]} minus {against}")
    has_bytes = any("bytes" in row for row in results["results"])  # not in results of early versions
    sizes = {"vectors per document": _vectors} | ({"bytes per document": _bytes} if has_bytes else {})
    heads = ["system", *sizes, *heads]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in results["results"]:
        cells = [f"{m['mean']:.1f} ({m['low']:.1f} to {m['high']:.1f})" for m in row["measures"].values()]
        if against is not None:
            apart = row.get("difference", {}).get(names[0])
            cells.append(
                "" if apart is None else f"{apart['mean']:+.1f} ({apart['low']:+.1f} to {apart['high']:+.1f})"
            )
        name = f"{row['system']} ({row['words']} words)" if "words" in row else row["system"]
        lines.append(f"| {' | '.join([name, *(size(row) for size in sizes.values()), *cells])} |")
    settings = results["settings"]
    lines += [
        "",
        f"{settings['task']}: {results['queries']:,} queries, {results['documents']:,} documents, similarity "
        f"{settings['similarity']}. In brackets 95% intervals, {settings['samples']:,} samples of the queries; "
        + (f"candidates shuffled by seed {settings['seed']}, " if settings["kind"] == "reranking" else "")
        + "ties count against the system."
        + (
            " Bytes are those of vectors in the dtype that is measured, or of BM25's scores."
            if has_bytes
            else ""
        ),
    ]
    return "\n".join(lines) + "\n"


def _vectors(row: dict[str, Any]) -> str:
    return "" if row["vectors"] is None else f"{row['vectors']:.1f}"


def _bytes(row: dict[str, Any]) -> str:
    """Return the bytes per document with their dtype; empty for a row of an early version."""
    if "bytes" not in row:
        return ""
    return f"{row['bytes']:,.0f}" + (f" ({row['dtype']})" if "dtype" in row else "")
