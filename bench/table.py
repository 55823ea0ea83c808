"""python -m bench.table: regenerate the benchmark tables of the README and the docs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bench.measuring import RESULTS
from tools.marks import fill_marks

ROOT = RESULTS.parent.parent
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "benchmarks.md",
    ROOT / "docs" / "onnx.md",
    ROOT / "docs" / "search.md",
    ROOT / "docs" / "serving.md",
    ROOT / "docs" / "sizing.md",
)
ORDER = (
    "encode-vs-bare-marian",
    "encode-vs-bare-bert",
    "encode-vs-sentence-transformers",
    "onnx-query",
    "onnx-document",
    "onnx-query-int8",
    "onnx-document-int8",
    "reconstruct-vs-generate",
    "encode-memory",
    "train-vs-seq2seq",
    "train-vs-seq2seq-frozen",
    "train-vs-seq2seq-sampled",
    "index-size",
    "index-latency",
    "index-quality",
    "maxsim-vs-sentence-transformers",
    "token-cost-at-1152",
    "token-cost-at-8192",
    "token-memory",
    "serve-batching",
    "serve-memory",
    "serve-fuzz",
    "input-fuzz",
)

# Alternatives: label -> system in docs/results/search, row of the index benchmark.
CHOICES = {
    "nuggets (`search`)": ("search", "nuggets"),
    "one vector per document": ("all-MiniLM-L6-v2:mean", "one vector"),
    "a vector for every token": ("all-MiniLM-L6-v2:all", "all tokens"),
    "BM25": ("bm25", "bm25"),
}


def read(name: str) -> dict[str, Any]:
    """Read a recorded result."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def results_table() -> str:
    """Return all ratios, with their better direction."""
    rows = ["| what | better | ratio | range | target | threads |", "|---|---|---|---|---|---|"]
    for name in ORDER:
        if not (RESULTS / f"{name}.json").is_file():  # not measured yet
            continue
        result = read(name)
        spread = f"{result['ratio_min']} to {result['ratio_max']}" if "ratio_min" in result else ""
        rows.append(
            f"| [{name}](../bench/results/{name}.json): relative to {result['claim']} | "
            f"{'lower' if result['target'].startswith('<') else 'higher'} | "
            f"{result['ratio']}x | {spread} | {result['target']} | "
            f"{result['machine']['torch_threads']} |"
        )
    rows += [
        "",
        "Measured on CPU, with the number of threads in the last column; where there is a range, the ratio is the median of "
        "paired rounds. Rows of ONNX, the index and the server use shipped models, the others untrained ones. `python -m bench "
        "TEXTS` repeats them; `--only onnx`, `search`, `serve`, `endurance` or `fuzz` run only the rows of ONNX, the index and the server, "
        "`--only fuzz-inputs` the last.",
    ]
    return "\n".join(rows)


def index_table() -> str:
    """Return the index benchmark: nuggets, all tokens, one vector and BM25."""
    result = read("index-size")
    rows = ["| | on disk | built in | a query, p50 / p95 | nDCG@10 |", "|---|---|---|---|---|"]
    for name, row in result["rows"].items():
        size = "" if row["bytes"] is None else f"{row['bytes'] / 1e6:,.0f} MB"
        rows.append(
            f"| {name} | {size} | {row['build_seconds']:,.0f} s | {row['p50_ms']:,.0f} / {row['p95_ms']:,.0f} ms | "
            f"{row['ndcg']:.1f} |"
        )
    settings, threads = result["config"], result["machine"]["torch_threads"]
    return "\n".join(
        [
            *rows,
            "",
            f"{settings['documents']:,} documents, {settings['queries']} queries, the first {settings['k']} hits; "
            f"{threads} CPU thread{'s' * (threads > 1)}; no texts stored, one vector as float16.",
        ]
    )


def choice_table() -> str:
    """Return quality, size and latency of nuggets and of their alternatives."""
    quality = {
        task: {row["system"]: row["measures"]["nDCG@10"]["mean"] for row in _similarity(task)["results"]}
        for task in ("cranfield", "time")
    }
    measured = read("index-size")
    rows = [
        f"| | Cranfield ({_tokens('cranfield')} tokens), nDCG@10 | TIME ({_tokens('time')} tokens), nDCG@10 | "
        f"{measured['config']['documents']:,} passages on disk | a query, median |",
        "|---|---|---|---|---|",
    ]
    for label, (system, name) in CHOICES.items():
        row = measured["rows"][name]
        size = "" if row["bytes"] is None else f"{row['bytes'] / 1e6:,.0f} MB"
        cells = [f"{quality[task][system]:.1f}" for task in quality]
        rows.append(f"| {label} | {' | '.join(cells)} | {size} | {row['p50_ms']:,.0f} ms |")
    return "\n".join(
        [
            *rows,
            "",
            "Higher nDCG is better. The first three use the same backbone, all-MiniLM-L6-v2; exact search on one CPU thread "
            "([disk and time](bench/results/index-size.json), [Cranfield](docs/results/search/cranfield/similarity.md), "
            "[TIME](docs/results/search/time/similarity.md)).",
        ]
    )


def _tokens(task: str) -> int:
    """Return the mean number of tokens of a document, which is its number of vectors where every token has one."""
    system, _ = CHOICES["a vector for every token"]
    return round(next(row["vectors"] for row in _similarity(task)["results"] if row["system"] == system))


def _similarity(task: str) -> dict[str, Any]:
    path = ROOT / "docs" / "results" / "search" / task / "similarity.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def load_table() -> str:
    """Return the server's throughput and latency by number of clients."""
    result = read("serve-batching")
    rows = ["| clients | batching: a second, p50 / p95 | one by one: a second, p50 / p95 |", "|---|---|---|"]
    for both in zip(*result["rows"].values(), strict=True):
        cells = [f"{row['per_second']:.1f}, {row['p50_ms']:.0f} / {row['p95_ms']:.0f} ms" for row in both]
        rows.append(f"| {both[0]['clients']} | {' | '.join(cells)} |")
    settings = result["config"]
    return "\n".join(
        [
            *rows,
            "",
            f"Texts of {settings['words']} words to `/v1/embeddings`, the model {settings['model']!r}, client and server on "
            f"{result['machine']['torch_threads']} CPU cores.",
        ]
    )


def scale_table() -> str:
    """Return the measured indexes of `bench.scale`, smallest first."""
    if not _scales():
        return "No result is recorded yet."
    rows = [
        "| passages | on disk | built at | compacted in | two stages, p50 / p95 | all scored, p50 / p95 | recall@10 | memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in _scales():
        two, every = result["two stages"], result["exact"]
        rows.append(
            f"| {result['documents']:,} | {result['bytes'] / 1e6:,.0f} MB | {result['written_per_second']:,.0f} a second | "
            f"{result['compacting_seconds']:,.0f} s | {two['p50_ms']:,.0f} / {two['p95_ms']:,.0f} ms | "
            f"{every['p50_ms']:,.0f} / {every['p95_ms']:,.0f} ms | {result['recall']:.3f} | "
            f"{two['resident_bytes'] / 1e6:,.0f} MB |"
        )
    largest = _scales()[-1]
    nuggets = largest["vectors"] / largest["documents"]
    kind = "repeated nuggets of real passages" if largest["config"]["real"] else "random vectors"
    return "\n".join(
        [
            *rows,
            "",
            f"{kind[0].upper()}{kind[1:]}, {nuggets:.1f} a passage, as {largest['config']['dtype']}, without texts; "
            f"{largest['config']['queries']} queries of up to four vectors. Built at: without encoding. Memory: by which "
            "the process grew when it opened the index and searched it in two stages, with the parts of files that were read.",
        ]
    )


def sizes_table() -> str:
    """Return the computed sizes of indexes, from the bytes per passage of the largest measured one."""
    if not _scales():
        return "No result is recorded yet."
    result = _scales()[-1]
    passage = result["bytes"] / result["documents"]
    rows = ["| passages | nuggets | vectors | whole index |", "|---|---|---|---|"]
    for count in (10_000, 100_000, 400_000, 10_000_000):
        vectors = count * result["vectors"] / result["documents"]
        size = count * result["vector_bytes"] / result["documents"]
        rows.append(
            f"| {count:,} | {vectors:,.0f} | {size / 1e6:,.0f} MB | {count * passage / 1e6:,.0f} MB |"
        )
    return "\n".join(
        [
            *rows,
            "",
            f"Computed from {passage:,.0f} bytes a passage, measured with {result['documents']:,} passages of "
            f"{result['tokens'] / result['documents']:,.0f} tokens and {result['vectors'] / result['documents']:.1f} nuggets, with "
            "a first stage, without texts and words.",
        ]
    )


def _scales() -> list[dict[str, Any]]:
    files = RESULTS.glob("index-scale-*.json")
    return sorted((read(file.stem) for file in files), key=lambda result: int(result["documents"]))


def fuzz_table() -> str:
    """Return what damaged inputs did, by command."""
    if not (RESULTS / "input-fuzz.json").is_file():
        return "No result is recorded yet."
    result = read("input-fuzz")
    kinds = ("cases", "refused", "tracebacks", "silent_differences", "lost_files")
    rows = [
        "| command | cases | refused | tracebacks | silent differences | lost files |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in [*result["rows"].items(), ("all", result)]:
        rows.append(f"| {name} | {' | '.join(f'{row[kind]:,}' for kind in kinds)} |")
    return "\n".join(
        [
            *rows,
            "",
            f"Seed {result['config']['seed']}, {result['seconds'] / 60:,.0f} minutes in two processes.",
        ]
    )


def onnx_table() -> str:
    """Return how much faster exported models encode."""
    rows = ["| relative to torch | float32 | int8 |", "|---|---|---|"]
    measured = [name for name in ORDER if name.startswith("onnx-")]
    if not all((RESULTS / f"{name}.json").is_file() for name in measured):
        return "No result is recorded yet."
    for what, label in (("query", "queries, one at a time"), ("document", "documents, in batches of 32")):
        plain, rounded = read(f"onnx-{what}"), read(f"onnx-{what}-int8")
        rows.append(f"| {label} | {plain['ratio']:.1f}x | {rounded['ratio']:.1f}x |")
    settings, threads = read("onnx-document")["config"], plain["machine"]["torch_threads"]
    return "\n".join(
        [
            *rows,
            "",
            f"The model {settings['model']!r}, {threads} thread{'s' * (threads > 1)} on a processor {'with' if settings['vnni'] else 'without'} VNNI; texts: {settings['source']}. "
            f"The times include the tokenizer ([all rounds](../bench/results/onnx-query-int8.json)).",
        ]
    )


TABLES: dict[str, Callable[[], str]] = {
    "bench": results_table,
    "choice": choice_table,
    "fuzz": fuzz_table,
    "index": index_table,
    "load": load_table,
    "onnx": onnx_table,
    "scale": scale_table,
    "sizes": sizes_table,
}


def fill(page: str) -> str:
    """Return a page with its tables regenerated."""
    return fill_marks(page, TABLES)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")
