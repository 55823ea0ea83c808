"""Speed of a model exported to ONNX compared with the same model in torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from bench.measuring import compare, record
from textnuggets.model.load import load_nugget_model
from textnuggets.onnx.export import export_onnx
from textnuggets.onnx.model import OnnxModel

QUERIES, WORDS = 100, 12  # queries, and words of each: the first of a text
DOCUMENTS = 32
TARGETS = {("query", False): 1.0, ("query", True): 5.0, ("document", False): 1.0, ("document", True): 1.8}


def onnx_against_torch(name: str, texts: list[str], source: str, rounds: int) -> None:
    """Compare the encoding of queries, one at a time, and of documents, in batches, both on one thread."""
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    model = load_nugget_model(name, "cpu")
    documents = texts[:DOCUMENTS]
    queries = [" ".join(text.split()[:WORDS]) for text in texts[:QUERIES]]
    for int8 in (False, True):
        with TemporaryDirectory() as folder:
            export_onnx(model, Path(folder), int8)
            exported = OnnxModel(folder)
        work: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "query": (
                lambda: [exported.encode_query(query) for query in queries],  # noqa: B023  called in this round
                lambda: [model.encode_query(query) for query in queries],
            ),
            "document": (lambda: exported.encode(documents), lambda: model.encode(documents)),  # noqa: B023
        }
        for what, (ours, theirs) in work.items():
            record(
                f"onnx-{what}{'-int8' if int8 else ''}",
                f"the speed of torch, for {'queries one at a time' if what == 'query' else 'documents'}"
                f"{', with int8 weights' if int8 else ''}",
                f">= {TARGETS[what, int8]}",
                {
                    "model": name,
                    "texts": len(queries if what == "query" else documents),
                    "source": source,
                    "vnni": "vnni" in Path("/proc/cpuinfo").read_text(encoding="utf-8"),
                    "words": WORDS if what == "query" else None,
                },
                compare(ours, theirs, rounds),
            )
