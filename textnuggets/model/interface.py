"""The methods a user calls: texts in, nuggets out, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np
from numpy.typing import NDArray

from textnuggets.config import ResidualMode, check_count, check_residual
from textnuggets.errors import ConfigError, InputError
from textnuggets.io.progress import Progress
from textnuggets.model.coverage import Coverage, active_coverage
from textnuggets.model.decoding import reconstruct_all
from textnuggets.model.encoding import Budget, as_dtype, encode_stream
from textnuggets.model.maxsim import Vectors, maxsim
from textnuggets.model.nuggets import Nuggets
from textnuggets.model.reconstruction import Reconstruction

if TYPE_CHECKING:
    from torch import Tensor

    from textnuggets.model.modeling import NuggetModel


class TextInterface:
    """Encoding, comparing and decoding texts, for NuggetModel to inherit."""

    def _as_model(self) -> NuggetModel:
        return cast("NuggetModel", self)

    @overload
    def encode(  # type: ignore[overload-overlap]
        self,
        texts: str,
        ratio: float | None = ...,
        max_vectors: int | None = ...,
        batch_size: int = ...,
        dtype: str = ...,
        show_progress_bar: bool = ...,
        convert_to_tensor: Literal[False] = ...,
    ) -> Nuggets: ...
    @overload
    def encode(
        self,
        texts: Iterable[str],
        ratio: float | None = ...,
        max_vectors: int | None = ...,
        batch_size: int = ...,
        dtype: str = ...,
        show_progress_bar: bool = ...,
        convert_to_tensor: Literal[False] = ...,
    ) -> list[Nuggets]: ...
    @overload
    def encode(  # type: ignore[overload-overlap]
        self,
        texts: str,
        ratio: float | None = ...,
        max_vectors: int | None = ...,
        batch_size: int = ...,
        dtype: str = ...,
        show_progress_bar: bool = ...,
        *,
        convert_to_tensor: Literal[True],
    ) -> Tensor: ...
    @overload
    def encode(
        self,
        texts: Iterable[str],
        ratio: float | None = ...,
        max_vectors: int | None = ...,
        batch_size: int = ...,
        dtype: str = ...,
        show_progress_bar: bool = ...,
        *,
        convert_to_tensor: Literal[True],
    ) -> list[Tensor]: ...
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
        """Turn texts into nuggets, in the order given; one text gives one `Nuggets`.

        Warn once (`TextnuggetsWarning`) if the texts are in a language or have characters that the model does not
        know, or, for a model that decodes, characters that it cannot write.

        Args:
            texts: A string, or any iterable of strings.
            ratio: Compression ratio; the model's own by default.
            max_vectors: Maximum number of nuggets of a text, instead of a ratio.
            batch_size: Number of windows encoded together.
            dtype: Type of the vectors: float32, float16 or float64.
            show_progress_bar: Whether to report progress on standard error.
            convert_to_tensor: Whether to return the vectors alone, as a torch tensor `(k, d)` for each text, on the
                model's device.
        """
        alone = isinstance(texts, str)
        items: Iterable[str] = [texts] if isinstance(texts, str) else texts
        found: list[Any] = list(
            self.encode_iter(items, ratio, max_vectors, batch_size, dtype, show_progress_bar)
        )
        if convert_to_tensor:
            found = [item.to_tensor().to(self._as_model().device) for item in found]
        return found[0] if alone else found

    @overload
    def encode_query(self, texts: str, ratio: float | None = ..., **options: Any) -> Nuggets: ...
    @overload
    def encode_query(
        self, texts: Iterable[str], ratio: float | None = ..., **options: Any
    ) -> list[Nuggets]: ...
    def encode_query(self, texts: Any, ratio: float | None = None, **options: Any) -> Any:
        """Encode queries, at the model's `query_ratio` unless a ratio is given; options as for `encode`."""
        return self.encode(
            texts, ratio=self._as_model().config.ratio_of_queries() if ratio is None else ratio, **options
        )

    @overload
    def encode_document(self, texts: str, ratio: float | None = ..., **options: Any) -> Nuggets: ...
    @overload
    def encode_document(
        self, texts: Iterable[str], ratio: float | None = ..., **options: Any
    ) -> list[Nuggets]: ...
    def encode_document(self, texts: Any, ratio: float | None = None, **options: Any) -> Any:
        """Encode documents, at the model's `ratio` unless another is given; options as for `encode`."""
        return self.encode(texts, ratio=ratio, **options)

    def similarity(
        self, queries: Vectors | Sequence[Vectors], documents: Vectors | Sequence[Vectors]
    ) -> NDArray[np.float32]:
        """Return mean-MaxSim `(queries, documents)` of encoded texts; one text counts as a list of one.

        Each row ranks the documents for a query. The measure is not symmetric: the query comes first.
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
        """Like `encode`, one by one: a generator of any size streams through in bounded memory."""
        model = self._as_model()
        check_count("batch_size", batch_size, at_least=1)
        stored = as_dtype(dtype)
        if isinstance(texts, str):
            texts = [texts]
        if not isinstance(texts, Iterable):
            raise InputError(f"texts must be a string or an iterable of strings, got {type(texts).__name__}.")
        budget = Budget.of(ratio, max_vectors, model.config.ratio)
        if max_vectors is not None and model.config.selector in ("all_tokens", "sentence_boundary"):
            raise ConfigError(
                f"the selector {model.config.selector!r} takes what it finds: max_vectors cannot hold."
            )

        def stream() -> Iterator[Nuggets]:  # apart, so that what is wrong is said at the call
            total = len(texts) if isinstance(texts, Sized) else None
            with Progress("encode", total, show_progress_bar) as progress:
                shared = active_coverage()
                coverage = Coverage() if shared is None else shared
                yield from encode_stream(model, texts, budget, batch_size, stored, progress, coverage)
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
            nuggets: What `encode` returned.
            num_beams: Beam width; 1 is greedy.
            batch_size: Windows decoded together.
            residual: Another residual mode than the model's, such as `off` to ablate the scores.
            show_progress_bar: Whether to report progress on standard error.
            return_probabilities: Whether to return a `Reconstruction` instead of each text: the text, and the
                probability that the decoder gave each of its words. Takes another pass of the decoder.
            options: For transformers' `generate`.
        """
        model = self._as_model()
        check_count("num_beams", num_beams, at_least=1)
        check_count("batch_size", batch_size, at_least=1)
        mode = check_residual(model.config.residual if residual is None else residual)
        alone = isinstance(nuggets, Nuggets)
        items = [nuggets] if isinstance(nuggets, Nuggets) else list(nuggets)
        for index, item in enumerate(items):
            if not isinstance(item, Nuggets):
                raise InputError(
                    f"reconstruct takes what encode returned; item {index} is {type(item).__name__}."
                )
        options = {"num_beams": num_beams, "do_sample": False, **options}
        total = sum(len(item.windows) for item in items)
        with Progress("reconstruct", total, show_progress_bar) as progress, model.evaluating():
            found = reconstruct_all(model, items, batch_size, mode, progress, options, return_probabilities)
        if return_probabilities:
            return found[0] if alone else found
        texts = [item.text for item in found]
        return texts[0] if alone else texts
