"""NuggetModule: a nugget model as the module of a sentence-transformers `MultiVectorEncoder`, and similarities for its losses.

In training, every vector has two more numbers, both zero, which carry the gradients of the scores through a loss of
sentence-transformers to `StraightThrough`. The losses' own similarities are not affected by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from textnuggets.errors import MissingExtraError
from textnuggets.model.budget import nugget_count
from textnuggets.model.encoding import checked_texts
from textnuggets.model.load import load_nugget_model
from textnuggets.model.modeling import NuggetModel
from textnuggets.model.padding import pad
from textnuggets.model.windows import cut_into_windows
from textnuggets.train.maxsim import Side, answers, equal_weights, score_bias, zero_softmax

try:
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import InputModule, Module
except ImportError as error:  # missing, or a version before 6.2
    raise MissingExtraError(
        "sentence-transformers>=6.2", "sentence-transformers", "a model for sentence-transformers"
    ) from error

__all__ = ["Module", "MultiVectorEncoder", "NuggetModule", "StraightThrough", "carry_scores"]
GROUP = 32  # windows of similar length that are encoded together


class NuggetModule(InputModule):
    """Module that turns texts into nuggets of length 1; texts longer than the model's window are not truncated."""

    forward_kwargs = {"task"}  # noqa: RUF012  as the base class declares it

    def __init__(self, model: NuggetModel) -> None:
        super().__init__()
        self.model = model

    @property
    def tokenizer(self) -> Any:  # type: ignore[override]
        """The model's tokenizer."""
        return self.model.tokenizer

    def get_embedding_dimension(self) -> int:
        """Return the number of dimensions of a nugget."""
        return self.model.dim

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that are shown when the module is printed."""
        config = self.model.config
        return {"ratio": config.ratio, "query_ratio": config.ratio_of_queries(), "selector": config.selector}

    def preprocess(
        self,
        inputs: Sequence[Any],
        prompt: str | None = None,
        max_length: int | None = None,
        **_: Any,
    ) -> dict[str, Tensor]:
        """Return the tokens of texts; the windows of a text follow each other in one row.

        Args:
            inputs: Texts.
            prompt: Text that is put before each of them.
            max_length: Number of tokens that are kept of a text; all by default.

        Returns:
            `input_ids`, `attention_mask` and `windows` (the number of each token's window), all `(texts, n)`, and
            `sentence_ends` if the model's selector needs them.
        """
        limit = self.model.window if max_length is None else min(self.model.window, max_length)
        texts = [(prompt or "") + text for text in checked_texts(inputs)]
        cut = cut_into_windows(self.model.tokenizer, texts, limit)
        if max_length is not None:
            cut = [parts[:1] for parts in cut]
        rows = {"windows": [[number for number, part in enumerate(parts) for _ in part.ids] for parts in cut]}
        if self.model.selector.needs_sentence_ends:
            rows["sentence_ends"] = [[end for part in parts for end in part.sentence_ends()] for parts in cut]
        input_ids, mask = pad(
            [[token for part in parts for token in part.ids] for parts in cut], self.model.pad_id
        )
        features = {"input_ids": input_ids, "attention_mask": mask.long()}
        return features | {name: pad(values, 0)[0] for name, values in rows.items()}

    def forward(  # type: ignore[override]
        self, features: dict[str, Any], task: str | None = None
    ) -> dict[str, Any]:
        """Add `token_embeddings`, the nuggets `(texts, k, d)`, and replace `attention_mask` by theirs.

        Args:
            features: Output of `preprocess`.
            task: `query`, for the ratio of queries; any other value is a document.
        """
        config = self.model.config
        ratio = config.ratio_of_queries() if task == "query" else config.ratio
        mask = features["attention_mask"].bool()
        texts, _ = mask.nonzero(as_tuple=True)
        numbers = features["windows"][mask]
        # A new window starts where the text or the number of the window changes.
        pairs, lengths = torch.stack([texts, numbers]).unique_consecutive(dim=1, return_counts=True)
        owners, sizes = pairs[0].tolist(), lengths.tolist()
        ids = features["input_ids"][mask].split(sizes)
        ends = features["sentence_ends"][mask].bool().split(sizes) if "sentence_ends" in features else None

        parts: list[Tensor] = [ids[0]] * len(sizes)  # (k, d + 1) vectors and scores of each window
        order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
        for start in range(0, len(order), GROUP):
            rows = order[start : start + GROUP]
            batch = pad_sequence([ids[i] for i in rows], batch_first=True, padding_value=self.model.pad_id)
            real = torch.arange(batch.shape[1], device=batch.device) < lengths[rows][:, None]
            generated = self.model.generate_nuggets(
                batch,
                real,
                nugget_count(lengths[rows], ratio),
                None if ends is None else pad_sequence([ends[i] for i in rows], batch_first=True),
            )
            units = functional.normalize(generated.nuggets.float(), dim=-1)
            scored = torch.cat([units, generated.scores.float()[:, :, None]], dim=-1)
            for i, window, kept in zip(rows, scored, generated.selection.kept, strict=True):
                parts[i] = window[kept]
        joined = [
            torch.cat([part for part, owner in zip(parts, owners, strict=True) if owner == text])
            for text in range(len(mask))
        ]
        vectors = pad_sequence(joined, batch_first=True)
        k = torch.tensor([len(rows) for rows in joined], device=mask.device)
        kept = torch.arange(vectors.shape[1], device=mask.device) < k[:, None]
        vectors, scores = vectors[..., :-1], vectors[..., -1]
        # If every token is selected, there is no selection to learn.
        if self.training and self.model.scorer is not None and ratio < 1:
            vectors = carry_scores(vectors, scores, kept)
        return {**features, "token_embeddings": vectors, "attention_mask": kept}

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Save the model, as safetensors, so that `textnuggets.load` can load the folder, too."""
        self.model.save_pretrained(output_path)

    @classmethod
    def load(  # type: ignore[override]
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        model_kwargs: dict[str, Any] | None = None,
        **_: Any,
    ) -> NuggetModule:
        """Load the model of a folder or hub id."""
        hub: dict[str, Any] = {}
        if not Path(model_name_or_path).is_dir():
            hub = {"token": token, "cache_dir": cache_folder, "revision": revision}
            hub["local_files_only"] = local_files_only
        if subfolder:
            hub["subfolder"] = subfolder
        return cls(load_nugget_model(model_name_or_path, **hub, **(model_kwargs or {})))


def carry_scores(vectors: Tensor, scores: Tensor, kept: Tensor) -> Tensor:
    """Append two zeros to each vector `(texts, k, d)`, with the gradients of the scores `(texts, k)`."""
    carried = torch.stack([zero_softmax(scores, kept), scores - scores.detach()], dim=-1)
    return torch.cat([vectors, carried], dim=-1)


class StraightThrough:
    """Mean-MaxSim as the `similarity_fct` of a loss: with the same values, but gradients for the scorer, too.

    Args:
        encoder: Encoder from `as_sentence_transformer` or `add_nugget_head`.
    """

    def __init__(self, encoder: MultiVectorEncoder) -> None:
        self._dim = encoder.get_embedding_dimension

    def __call__(
        self,
        queries_embeddings: Tensor,
        documents_embeddings: Tensor,
        queries_mask: Tensor,
        documents_mask: Tensor,
    ) -> Tensor:
        """Return the similarity of all queries and documents, `(queries, groups * documents)`.

        Args:
            queries_embeddings: `(queries, k, d)`.
            documents_embeddings: `(groups, documents, k, d)`.
            queries_mask: `(queries, k)` True on real vectors.
            documents_mask: `(groups, documents, k)`.
        """
        query, weights = self._query(queries_embeddings, queries_mask)
        document = self._document(documents_embeddings.flatten(0, 1), documents_mask.flatten(0, 1))
        return (answers(query, document) * weights[:, :, None]).sum(1)

    def listwise(
        self,
        queries_embeddings: Tensor,
        documents_embeddings: Tensor,
        queries_mask: Tensor,
        documents_mask: Tensor,
    ) -> Tensor:
        """Return the similarity of each query and its own documents, `(queries, documents)`; shapes as above."""
        ways = zip(documents_embeddings.unbind(1), documents_mask.unbind(1), strict=True)
        return torch.stack(
            [self.pairwise(queries_embeddings, vectors, queries_mask, kept) for vectors, kept in ways], dim=1
        )

    def pairwise(
        self,
        queries_embeddings: Tensor,
        documents_embeddings: Tensor,
        queries_mask: Tensor,
        documents_mask: Tensor,
    ) -> Tensor:
        """Return the similarity of each query and its document `(queries, k, d)`, `(queries,)`."""
        query, weights = self._query(queries_embeddings, queries_mask)
        document = self._document(documents_embeddings, documents_mask)
        cosines = query.vectors @ document.vectors.mT + score_bias(document)[:, None]
        return (cosines.amax(-1) * weights).sum(1)

    def _query(self, vectors: Tensor, mask: Tensor) -> tuple[Side, Tensor]:
        side, carried = self._document(vectors, mask), vectors[..., self._dim() :]
        weights = equal_weights(side.kept)
        return side, weights + carried[..., 0] if carried.shape[-1] else weights

    def _document(self, vectors: Tensor, mask: Tensor) -> Side:
        carried = vectors[..., self._dim() :]
        vectors = vectors[..., : self._dim()]
        scores = carried[..., 1] if carried.shape[-1] else vectors.new_zeros(mask.shape)
        return Side(vectors, scores, mask.bool())
