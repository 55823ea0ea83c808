"""OnnxModel: a nugget model that onnxruntime runs on a CPU, without torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textnuggets.errors import CheckpointError, MissingExtraError
from textnuggets.model.encoder import Computed, SelectorTraits
from textnuggets.model.interface import TextInterface
from textnuggets.onnx.config import GRAPH, OnnxConfig
from textnuggets.onnx.tokenizer import OnnxTokenizer

# onnxruntime fuses additions into layer norms, and its fused operator is several times slower on a CPU.
SLOWER = ["SkipLayerNormFusion"]


class OnnxModel(TextInterface):
    """Nugget model in a folder that `textnuggets export --onnx` wrote.

    It runs on as many threads as `OMP_NUM_THREADS` says, as with torch, or one per core.
    """

    device = "cpu"

    def __init__(self, folder: str | Path) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtraError("onnxruntime", "onnx", f"the ONNX model {str(folder)!r}") from error
        folder = Path(folder)
        self.config = OnnxConfig.load(folder)
        self.selector = SelectorTraits(self.config.selector)
        self._tokenizer = OnnxTokenizer(folder, self.config)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors, which are raised as well
        if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():
            options.intra_op_num_threads = int(threads)
        try:
            self._session = onnxruntime.InferenceSession(
                folder / GRAPH, options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOWER
            )
        except Exception as error:  # onnxruntime has a type for each status, without a common one
            reason = " ".join(str(error).split())[:300]
            raise CheckpointError(f"onnxruntime cannot load {folder / GRAPH}: {reason}") from error

    @property
    def tokenizer(self) -> Any:
        """Tokenizer that returns `tokenizers.Encoding`s with offsets."""
        return self._tokenizer

    @property
    def window(self) -> int:
        """Maximum number of tokens encoded at once, including special tokens."""
        return self.config.window

    @property
    def pad_id(self) -> int:
        """Padding id, which attention masks out."""
        return self.config.pad_id

    @property
    def dim(self) -> int:
        """Number of dimensions of a nugget."""
        return self.config.dimensions

    @property
    def architecture(self) -> str:
        """Name of the backbone's architecture, such as `bert`."""
        return self.config.architecture

    @property
    def can_decode(self) -> bool:
        """False: only encoders are exported."""
        return False

    @property
    def recorded_fingerprint(self) -> str:
        """Fingerprint of the weights that were exported."""
        return self.config.fingerprint

    @property
    def arithmetic(self) -> dict[str, str]:
        """Precision and device, on which the last digits of a vector depend."""
        return {"precision": f"onnx {self.config.precision}", "device": "cpu"}

    def compute(
        self,
        input_ids: NDArray[np.int64],
        mask: NDArray[np.bool_],
        counts: list[int],
        sentence_ends: NDArray[np.bool_] | None = None,  # noqa: ARG002  no exported selector uses them
    ) -> Computed:
        """Compute the nuggets of a batch of windows."""
        lengths = mask.sum(1)
        kept = np.minimum(counts, lengths)
        vectors, positions, token_scores = self._session.run(
            None, {"input_ids": input_ids, "lengths": lengths, "counts": kept, "slots": np.arange(kept.max())}
        )
        return Computed(vectors, positions, kept.tolist(), token_scores)
