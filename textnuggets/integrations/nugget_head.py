"""NuggetHead: nuggets of the token vectors of any `MultiVectorEncoder`, such as a ColBERT model.

    encoder = add_nugget_head(MultiVectorEncoder("lightonai/LateOn"), ratio=0.1)

The encoder's modules stay as they are, with their prompts, query expansion and masks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model, save_model
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from textnuggets.checks import GatherMode, check_ratio
from textnuggets.errors import CheckpointError, ConfigError
from textnuggets.integrations.nugget_module import Module, MultiVectorEncoder, carry_scores
from textnuggets.model.budget import nugget_count
from textnuggets.model.pooling import Gather
from textnuggets.model.scoring import Scorer
from textnuggets.model.selection import Candidates, get_selector

SELECTORS = ("even", "spread", "learned")  # those that need nothing but the vectors and their scores
WEIGHTS = "model.safetensors"


class NuggetHead(Module):
    """Module that reduces the n token vectors of a text to k = ceil(n * r) nuggets of length 1.

    Args:
        dim: Dimensions of the vectors.
        ratio: Compression ratio r of documents.
        query_ratio: Compression ratio of queries; 1 keeps all of their vectors.
        selector: `even` (no training needed), `spread` or `learned`; see `NuggetConfig`.
        gather: Token vectors that form a nugget; see `NuggetConfig`.
    """

    config_keys = ["dim", "ratio", "query_ratio", "selector", "gather"]  # noqa: RUF012  as the base class declares it
    forward_kwargs = {"task"}  # noqa: RUF012

    def __init__(
        self,
        dim: int,
        ratio: float = 0.1,
        query_ratio: float = 1.0,
        selector: str = "even",
        gather: GatherMode = "mean",
    ) -> None:
        super().__init__()
        if selector not in SELECTORS:
            raise ConfigError(f"selector must be one of {', '.join(SELECTORS)}; got {selector!r}.")
        if gather == "content":
            raise ConfigError(
                "gather 'content' needs token ids, which a nugget head does not see: use 'mean'."
            )
        self.dim, self.selector, self.gather = dim, selector, gather
        self.ratio, self.query_ratio = check_ratio(ratio), check_ratio(query_ratio)
        self.select = get_selector(selector)
        self.scorer = Scorer(dim) if self.select.learned else None
        self.pool = Gather(dim, gather)
        if self.pool.attention is not None:
            nn.init.zeros_(self.pool.attention.weight)

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions of a nugget."""
        return self.dim

    def forward(  # type: ignore[override]
        self, features: dict[str, Any], task: str | None = None
    ) -> dict[str, Any]:
        """Replace `token_embeddings` `(texts, n, d)` and `attention_mask` `(texts, n)` by those of the nuggets.

        Args:
            features: Output of the modules before.
            task: `query`, for the ratio of queries; any other value is a document.
        """
        ratio = self.query_ratio if task == "query" else self.ratio
        if ratio >= 1:
            return features
        mask = features["attention_mask"].bool()  # may have gaps, where tokens are not to be compared
        n = mask.sum(1)
        rows = features["token_embeddings"][mask].split(n.tolist())
        vectors = functional.pad(pad_sequence(list(rows), batch_first=True), (0, 0, 0, int(n.max() == 0)))
        # A text without any vector is treated as one with a zero vector, which is left out again.
        real = torch.arange(vectors.shape[1], device=n.device) < n.clamp(min=1)[:, None]
        scores = torch.zeros_like(real, dtype=torch.float32) if self.scorer is None else self.scorer(vectors)
        unused = torch.zeros_like(real)
        selection = self.select(
            Candidates(scores.detach(), real, nugget_count(n, ratio), unused, unused, torch.ones_like(scores))
        )
        nuggets = functional.normalize(
            self.pool(vectors, selection, real, torch.ones_like(scores)).float(), dim=-1
        )
        kept = selection.kept & (n > 0)[:, None]
        if self.training and self.scorer is not None:
            nuggets = carry_scores(nuggets, scores.gather(1, selection.positions), kept)
        return {**features, "token_embeddings": nuggets, "attention_mask": kept}

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Save the settings and, as safetensors, the weights."""
        self.save_config(output_path)
        save_model(self, str(Path(output_path) / WEIGHTS))

    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, subfolder: str = "", **options: Any
    ) -> NuggetHead:
        """Load the settings and weights of a folder or hub id."""
        hub = {name: options.get(name) for name in ("token", "cache_folder", "revision", "local_files_only")}
        place: dict[str, Any] = {"subfolder": subfolder, **hub}
        made = cls(**cls.load_config(model_name_or_path, **place))
        weights = cls.load_file_path(model_name_or_path, WEIGHTS, **place)
        if weights is None:
            raise CheckpointError(
                f"{model_name_or_path!r} lacks {subfolder}/{WEIGHTS}: save or download it again."
            )
        load_model(made, weights)
        return made


def add_nugget_head(
    encoder: MultiVectorEncoder,
    ratio: float = 0.1,
    query_ratio: float = 1.0,
    selector: str = "even",
    gather: GatherMode = "mean",
) -> MultiVectorEncoder:
    """Add a nugget head to a `MultiVectorEncoder`, in place, and return the encoder.

    Args:
        encoder: Encoder with a vector per token, such as a ColBERT model.
        ratio: Compression ratio of documents.
        query_ratio: Compression ratio of queries; 1 keeps all of their vectors.
        selector: `even` needs no training: with the gather mode `mean`, nuggets are means of equal chunks. `spread` and
            `learned` have a scorer, which is trained with `StraightThrough` as the loss's similarity.
        gather: Token vectors that form a nugget: `token`, `mean`, `attention` or `both`.
    """
    dim = encoder.get_embedding_dimension()
    if dim is None:
        raise ConfigError(
            "the encoder does not tell its dimensions: its last modules have no get_embedding_dimension."
        )
    head = NuggetHead(dim, ratio, query_ratio, selector, gather).to(encoder.device).train(encoder.training)
    encoder.append(head)
    return encoder
