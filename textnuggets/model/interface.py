"""The user-facing methods of NuggetModel: encode, compare and reconstruct texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast, overload

import numpy as np
from numpy.typing import NDArray

from textnuggets.checks import ResidualMode, check_count, check_residual
from textnuggets.errors import BackboneError, ConfigError, InputError
from textnuggets.io.progress import Progress
from textnuggets.model.budget import Budget
from textnuggets.model.coverage import Coverage, active_coverage
from textnuggets.model.encoder import TextEncoder
from textnuggets.model.encoding import as_dtype, encode_stream
from textnuggets.model.maxsim import Vectors, maxsim
from textnuggets.model.nuggets import Nuggets
from textnuggets.model.reconstruction import Reconstruction
from textnuggets.shipped import shipped_name

if TYPE_CHECKING:
    from torch import Tensor

    from textnuggets.model.modeling import NuggetModel


class EncodingOptions(TypedDict, total=False):
    """Types of the optional arguments of `encode`, which describes them."""

    max_vectors: int | None
    batch_size: int
    dtype: str
    show_progress_bar: bool


class TextInterface(TextEncoder):
    """Base class with the methods that encode, compare and decode texts."""

    @overload
    def encode(  # type: ignore[overload-overlap]
        self,
        texts: str,
        ratio: float | None = ...,
        *,
        convert_to_tensor: Literal[True],
        **options: Unpack[EncodingOptions],
    ) -> Tensor: ...
    @overload
    def encode(
        self,
        texts: Iterable[str],
        ratio: float | None = ...,
        *,
        convert_to_tensor: Literal[True],
        **options: Unpack[EncodingOptions],
    ) -> list[Tensor]: ...
    @overload
    def encode(  # type: ignore[overload-overlap]
        self,
        texts: str,
        ratio: float | None = ...,
        *,
        convert_to_tensor: Literal[False] = ...,
        **options: Unpack[EncodingOptions],
    ) -> Nuggets: ...
    @overload
    def encode(
        self,
        texts: Iterable[str],
        ratio: float | None = ...,
        *,
        convert_to_tensor: Literal[False] = ...,
        **options: Unpack[EncodingOptions],
    ) -> list[Nuggets]: ...
    def encode(
        self,
        texts: str | Iterable[str],
        ratio: float | None = None,
        max_vectors: int | None = None,
        batch_size: int = 32,
        dtype: str = "float32",
        show_progress_bar: bool = False,
        convert_to_tensor: bool = False,
    ) -> Any:
        """Encode texts into nuggets, in the given order; a single string returns a single `Nuggets`.

        Issue one `TextnuggetsWarning` if the texts are in a language or contain characters unknown to the model, or
        contain characters that a model with a decoder cannot decode.

        Args:
            texts: String, or iterable of strings.
            ratio: Compression ratio; the model's by default.
            max_vectors: Maximum number of nuggets per text, instead of a ratio.
            batch_size: Number of windows encoded together.
            dtype: Dtype of the vectors: float32, float16 or float64.
            show_progress_bar: Whether to report progress on standard error.
            convert_to_tensor: Whether to return only the vectors, as one `(k, d)` tensor per text on the model's device.
        """
        single = isinstance(texts, str)
        items: Iterable[str] = [texts] if isinstance(texts, str) else texts
        encoded: list[Any] = list(
            self.encode_iter(items, ratio, max_vectors, batch_size, dtype, show_progress_bar)
        )
        if convert_to_tensor:
            encoded = [item.to_tensor().to(self.device) for item in encoded]
        return encoded[0] if single else encoded

    @overload
    def encode_query(self, texts: str, ratio: float | None = ..., **options: Any) -> Nuggets: ...
    @overload
    def encode_query(
        self, texts: Iterable[str], ratio: float | None = ..., **options: Any
    ) -> list[Nuggets]: ...
    def encode_query(self, texts: Any, ratio: float | None = None, **options: Any) -> Any:
        """Encode queries, with the model's `query_ratio` by default; options as for `encode`."""
        return self.encode(texts, ratio=self.config.ratio_of_queries() if ratio is None else ratio, **options)

    @overload
    def encode_document(self, texts: str, ratio: float | None = ..., **options: Any) -> Nuggets: ...
    @overload
    def encode_document(
        self, texts: Iterable[str], ratio: float | None = ..., **options: Any
    ) -> list[Nuggets]: ...
    def encode_document(self, texts: Any, ratio: float | None = None, **options: Any) -> Any:
        """Encode documents, with the model's `ratio` by default; options as for `encode`."""
        return self.encode(texts, ratio=ratio, **options)

    def similarity(
        self, queries: Vectors | Sequence[Vectors], documents: Vectors | Sequence[Vectors]
    ) -> NDArray[np.float32]:
        """Return the mean-MaxSim matrix `(queries, documents)`; a single text counts as a list of one.

        Each row scores the documents for one query. The measure is not symmetric.
        """
        several: Sequence[Vectors] = queries if isinstance(queries, Sequence) else [queries]
        return maxsim(several, documents if isinstance(documents, Sequence) else [documents])

    def encode_iter(
        self,
        texts: Iterable[str],
        ratio: float | None = None,
        max_vectors: int | None = None,
        batch_size: int = 32,
        dtype: str = "float32",
        show_progress_bar: bool = False,
    ) -> Iterator[Nuggets]:
        """Yield the nuggets of each text; like `encode`, but in bounded memory for any number of texts."""
        check_count("batch_size", batch_size, at_least=1)
        stored = as_dtype(dtype)
        if isinstance(texts, str):
            texts = [texts]
        if not isinstance(texts, Iterable):
            raise InputError(f"texts must be a string or an iterable of strings, got {type(texts).__name__}.")
        budget = Budget.of(ratio, max_vectors, self.config.ratio)
        # A pooled text has one vector, which satisfies any maximum.
        if max_vectors is not None and not (self.selector.counts or self.selector.pools):
            raise ConfigError(
                f"max_vectors does not apply to the selector {self.selector.name!r}, which sets the number of "
                f"vectors itself."
            )

        def stream() -> Iterator[Nuggets]:  # a separate generator, so that the checks above run at the call
            total = len(texts) if isinstance(texts, Sized) else None
            with Progress("encode", total, show_progress_bar) as progress:
                shared = active_coverage()
                coverage = Coverage() if shared is None else shared
                yield from encode_stream(self, texts, budget, batch_size, stored, progress, coverage)
            if shared is None:
                coverage.warn(stacklevel=3)  # where `encode` was called

        return stream()

    @overload
    def reconstruct(
        self, nuggets: Nuggets, *, return_probabilities: Literal[True], **options: Any
    ) -> Reconstruction: ...
    @overload
    def reconstruct(
        self, nuggets: Iterable[Nuggets], *, return_probabilities: Literal[True], **options: Any
    ) -> list[Reconstruction]: ...
    @overload
    def reconstruct(self, nuggets: Nuggets, **options: Any) -> str: ...
    @overload
    def reconstruct(self, nuggets: Iterable[Nuggets], **options: Any) -> list[str]: ...
    def reconstruct(
        self,
        nuggets: Nuggets | Iterable[Nuggets],
        num_beams: int = 5,
        batch_size: int = 16,
        residual: ResidualMode | None = None,
        show_progress_bar: bool = False,
        return_probabilities: bool = False,
        **options: Any,
    ) -> str | list[str] | Reconstruction | list[Reconstruction]:
        """Decode nuggets back into text, or into its translation if the model was trained to.

        Args:
            nuggets: Nuggets returned by `encode`.
            num_beams: Beam width; 1 is greedy decoding.
            batch_size: Number of windows decoded together.
            residual: Residual mode, such as `off` to ablate the scores; the model's by default.
            show_progress_bar: Whether to report progress on standard error.
            return_probabilities: Whether to return a `Reconstruction` per text, with the decoder's probability of each
                word; takes another pass of the decoder.
            options: Arguments of transformers' `generate`.
        """
        model = cast("NuggetModel", self)
        check_count("num_beams", num_beams, at_least=1)
        check_count("batch_size", batch_size, at_least=1)
        single = isinstance(nuggets, Nuggets)
        items = [nuggets] if isinstance(nuggets, Nuggets) else list(nuggets)
        for index, item in enumerate(items):
            if not isinstance(item, Nuggets):
                raise InputError(
                    f"reconstruct takes Nuggets, as returned by encode; item {index} is {type(item).__name__}."
                )
        check_decodable(model, items)
        mode = check_residual(model.config.residual if residual is None else residual)

        from textnuggets.model.decoding import reconstruct_all  # needs torch, unlike encoding

        options = {"num_beams": num_beams, "do_sample": False, **options}
        total = sum(len(item.windows) for item in items)
        with Progress("reconstruct", total, show_progress_bar) as progress, model.evaluating():
            decoded = reconstruct_all(model, items, batch_size, mode, progress, options, return_probabilities)
        if return_probabilities:
            return decoded[0] if single else decoded
        texts = [item.text for item in decoded]
        return texts[0] if single else texts


def check_decodable(model: TextEncoder, nuggets: Sequence[Nuggets]) -> None:
    """Raise an error if the model has no decoder, or the nuggets are of another dimension."""
    if not model.can_decode:
        name = model.config.name_or_path
        named = f"the model {shipped_name(name) or name!s} is" if name else "this is"
        raise BackboneError(
            f"{named} a {model.architecture} backbone, which has no decoder: its nuggets can be searched, but "
            f"not turned back into text. Encode with textnuggets.load('reconstruct'), or build a model on bart, "
            f"mbart, marian, pegasus or t5."
        )
    for index, item in enumerate(nuggets):
        if item.vectors.shape[-1] != model.dim:
            raise InputError(
                f"nuggets {index} have {item.vectors.shape[-1]} dimensions, this model "
                f"{model.dim}: decode them with the model that encoded them."
            )
