"""Export of a nugget model to ONNX."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from textnuggets import __version__
from textnuggets.errors import BackboneError, ConfigError, MissingExtraError
from textnuggets.model.coverage import Uncounted, collecting
from textnuggets.model.fingerprint import INT8, fingerprint
from textnuggets.model.modeling import NuggetModel
from textnuggets.onnx.config import FORMAT, GRAPH, TOKENIZER, OnnxConfig
from textnuggets.onnx.graph import INPUTS, OUTPUTS, NuggetGraph, check_exportable
from textnuggets.onnx.model import OnnxModel

OPSET = 23  # the first with an operator for attention
# Version 23 also has one for rotary positions, which onnxruntime runs for single texts only.
ROTARY, ROTARY_OPSET = ("modernbert",), 20
LARGEST = 2_000_000_000  # bytes of a file of ONNX
EXACT = ("model.scorer", "model.value", "model.gather")  # modules that are never rounded to int8
CLOSE = 0.9999  # smallest cosine of vectors that are equal but for rounding
TRIAL = [
    "Ships were built here until 1911.",
    "The bridge is closed to cars, but not to bicycles; the mayor, who had voted against it, said so on Monday.",
    "It rained. " * 12,
    "a",
]


class Agreement(NamedTuple):
    """How well an exported model agrees with the model that it was made of, on a few texts."""

    cosine: float
    """Mean cosine of vectors at the same place."""
    positions: float
    """Share of nuggets at the same token."""


def export_onnx(model: NuggetModel, folder: Path, int8: bool = False) -> Agreement:
    """Write a model to a folder that `textnuggets.load` reads without torch, and compare the two.

    Args:
        model: Nugget model with one of the selectors `learned`, `spread`, `even` and `even_content`.
        folder: Existing empty folder.
        int8: Whether to round the weights of the backbone's linear layers to int8; the embeddings, the scorer and W^V stay
            in float32.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401  torch's exporter needs it
    except ImportError as error:
        raise MissingExtraError(error.name or "onnx", "export", "the export to ONNX") from error
    from textnuggets.onnx.rewriting import merge_projections, quantize

    check_exportable(model)
    size = sum(value.numel() * 4 for value in model.adapter.encoder.state_dict().values())
    if size > LARGEST:
        raise ConfigError(
            f"the encoder has {size / 1e9:.1f} GB of weights in float32; a file of ONNX holds {LARGEST / 1e9:.0f} GB."
        )
    graph = _trace(model)
    merge_projections(graph)
    if int8:
        quantize(graph, EXACT)
    onnx.save(graph, folder / GRAPH)
    tokenizer = model.tokenizer.backend_tokenizer
    tokenizer = type(tokenizer).from_str(tokenizer.to_str())  # a copy, as transformers shares it
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.save(str(folder / TOKENIZER))
    config = model.config
    OnnxConfig(
        format=FORMAT,
        version=__version__,
        fingerprint=fingerprint(model) + (INT8 if int8 else ""),
        precision="int8" if int8 else "float32",
        architecture=model.architecture,
        dimensions=model.dim,
        window=model.window,
        ratio=config.ratio,
        query_ratio=config.query_ratio,
        selector=config.selector,
        gather=config.gather,
        objective=config.objective,
        pad_id=model.pad_id,
        unknown_id=model.tokenizer.unk_token_id,
        special_ids=sorted(set(model.tokenizer.all_special_ids)),
        digests={},
    ).save(folder)
    found = compare(model, OnnxModel(folder))
    if not int8 and found.cosine < CLOSE:
        raise BackboneError(
            f"the export of this {model.architecture} model computes other vectors (mean cosine {found.cosine:.4f}): please "
            f"report it."
        )
    return found


def _trace(model: NuggetModel) -> Any:
    """Return the graph of a model, with any batch size, length and number of nuggets."""
    copied: Any = deepcopy(model)
    copied.to(device="cpu", dtype=torch.float32).eval()
    dynamic = torch.export.Dim.DYNAMIC
    shapes = {name: {0: dynamic} for name in INPUTS} | {"input_ids": {0: dynamic, 1: dynamic}}
    example = (
        torch.full((3, 13), copied.pad_id),
        torch.tensor([13, 9, 11]),
        torch.tensor([4, 2, 3]),
        torch.arange(4),
    )
    with _quiet(), torch.inference_mode():
        program: Any = torch.onnx.export(
            NuggetGraph(copied),
            example,
            dynamo=True,
            opset_version=ROTARY_OPSET if model.architecture in ROTARY else OPSET,
            input_names=INPUTS,
            output_names=OUTPUTS,
            dynamic_shapes=shapes,
            verbose=False,
        )
    return program.model_proto


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the warnings and messages of torch's exporter, which concern its own parts."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def compare(model: NuggetModel, exported: OnnxModel) -> Agreement:
    """Return how well two models agree."""
    with collecting(Uncounted()):
        pairs = list(zip(model.encode(TRIAL), exported.encode(TRIAL), strict=True))
    cosines = [
        (a.vectors * b.vectors).sum(1)
        / np.maximum(np.linalg.norm(a.vectors, axis=1) * np.linalg.norm(b.vectors, axis=1), 1e-30)
        for a, b in pairs
    ]
    same = np.concatenate([a.positions == b.positions for a, b in pairs])
    return Agreement(float(np.concatenate(cosines).mean()), float(same.mean()))
