"""The methods of NuggetModel with which texts are encoded: from arrays to arrays, computed by torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.typing import NDArray

from textnuggets.model.encoder import Computed
from textnuggets.model.interface import TextInterface
from textnuggets.model.selection import Selector

if TYPE_CHECKING:
    from textnuggets.model.modeling import NuggetModel


class TorchEncoder(TextInterface):
    """Mixin of NuggetModel that computes nuggets for encoding."""

    selector: Selector

    def _as_model(self) -> NuggetModel:
        return cast("NuggetModel", self)

    @property
    def architecture(self) -> str:
        """Name of the backbone's architecture, such as `bert`."""
        return str(self._as_model().adapter.config.model_type)

    @property
    def arithmetic(self) -> dict[str, str]:
        """Precision and device, on which the last digits of a vector depend."""
        model = self._as_model()
        return {"precision": str(model.dtype), "device": model.device.type}

    def compute(
        self,
        input_ids: NDArray[np.int64],
        mask: NDArray[np.bool_],
        counts: list[int],
        sentence_ends: NDArray[np.bool_] | None = None,
    ) -> Computed:
        """Compute the nuggets of a batch of windows, from arrays to arrays, without gradients."""
        model = self._as_model()
        device = model.device
        with torch.inference_mode():
            output = model.generate_nuggets(
                torch.from_numpy(input_ids).to(device),
                torch.from_numpy(mask).to(device),
                count=torch.tensor(counts, device=device),
                sentence_ends=None if sentence_ends is None else torch.from_numpy(sentence_ends).to(device),
            )
        return Computed(
            vectors=output.nuggets.float().cpu().numpy(),
            positions=output.selection.positions.cpu().numpy(),
            kept=output.selection.kept.sum(-1).tolist(),
            token_scores=output.token_scores.float().cpu().numpy(),
        )

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Switch to evaluation mode within the block."""
        model = self._as_model()
        training = model.training
        if not training:  # leave the mode alone: other threads may use the model
            yield
            return
        model.eval()
        try:
            yield
        finally:
            model.train(training)
