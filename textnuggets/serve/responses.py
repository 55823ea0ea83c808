"""Responses of the API, built from the results of models and the index."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from textnuggets.analysis.bleu import Bleu
from textnuggets.analysis.highlight import highlight
from textnuggets.errors import InputError, MissingExtraError
from textnuggets.io.sentences import sentence_spans
from textnuggets.model.budget import Budget, nugget_count
from textnuggets.model.coverage import Coverage, collecting
from textnuggets.model.interface import TextInterface
from textnuggets.model.layout import ORDINARY, Layout
from textnuggets.model.maxsim import maxsim, unit
from textnuggets.model.nuggets import Nuggets
from textnuggets.model.windows import cut_into_windows
from textnuggets.search.results import Hit
from textnuggets.serve import schemas as s
from textnuggets.serve import standard_schemas as standard
from textnuggets.serve.models import Served

if TYPE_CHECKING:
    from textnuggets.model.modeling import NuggetModel


def model(served: Served, searches: bool) -> standard.ModelOut:
    """Return a model in OpenAI's format, with its capabilities."""
    return standard.ModelOut(
        id=served.name,
        dimensions=served.model.dim,
        ratio=served.model.config.ratio,
        query_ratio=served.query_ratio,
        compares=served.compares,
        decodes=served.decodes,
        searches=searches,
    )


def embeddings(
    encoded: Sequence[Nuggets], request: standard.EmbeddingsRequest, name: str
) -> standard.EmbeddingsAnswer:
    """Return vectors in OpenAI's format."""
    data = []
    for index, nuggets in enumerate(encoded):
        vectors = nuggets.vectors.astype("<f4")
        as_base64 = request.encoding_format == "base64"
        data.append(
            standard.Embedding(
                index=index,
                embedding=b64encode(vectors.tobytes()).decode() if as_base64 else vectors.tolist(),
                shape=vectors.shape,
                spans=nuggets.spans.tolist() if request.spans else None,
                scores=nuggets.scores.tolist() if request.scores else None,
            )
        )
    return standard.EmbeddingsAnswer(data=data, model=name, usage=_usage(encoded))


def _usage(encoded: Sequence[Nuggets]) -> standard.Usage:
    tokens = sum(nuggets.token_count for nuggets in encoded)
    return standard.Usage(prompt_tokens=tokens, total_tokens=tokens)


def rerank(
    query: Nuggets,
    encoded: Sequence[Nuggets],
    documents: Sequence[str],
    request: standard.RerankRequest,
    model: str,
    answer_id: str,
    warning: str | None,
) -> standard.RerankAnswer:
    """Return documents in the format shared by Cohere and Jina, best first."""
    # Pass arrays, since maxsim would warn about Nuggets that are not comparable; the response has its own warning.
    scores = np.asarray(maxsim(query.vectors, [item.vectors for item in encoded]))
    order = np.argsort(-scores, kind="stable")[: request.top_n]
    results = [
        standard.RerankResult(
            index=int(i),
            relevance_score=float(scores[i]),
            document=standard.RerankDocument(text=documents[i]) if request.return_documents else None,
        )
        for i in order
    ]
    usage = _usage([query, *encoded])
    return standard.RerankAnswer(id=answer_id, model=model, results=results, usage=usage, warning=warning)


def nuggets(encoded: Nuggets, with_vectors: bool) -> s.NuggetsOut:
    """Return the nuggets of a text."""
    return s.NuggetsOut(
        nuggets=[
            s.Nugget(
                token=token,
                span=tuple(span),
                segment=tuple(segment),
                score=float(score),
                position=int(position),
                vector=vector.astype(np.float32).tolist() if with_vectors else None,
            )
            for token, span, segment, score, position, vector in zip(
                encoded.tokens,
                encoded.spans.tolist(),
                encoded.segments.tolist(),
                encoded.scores,
                encoded.positions,
                encoded.vectors,
                strict=True,
            )
        ],
        windows=encoded.windows.tolist(),
        token_count=encoded.token_count,
        layout=s.LayoutOut(words=list(encoded.layout.words), runs=list(encoded.layout.runs))
        if encoded.layout.runs
        else None,
    )


def with_pieces(
    model: TextInterface, texts: Sequence[str], ratio: float | None
) -> tuple[list[Nuggets], list[list[s.PieceOut]]]:
    """Return the nuggets of texts, and all tokens of each with their scores."""
    return model.encode(list(texts), ratio=ratio), [
        [
            s.PieceOut(
                text=piece.text,
                score=piece.score,
                shade=piece.shade,
                is_nugget=piece.is_nugget,
                is_special=piece.is_special,
            )
            for piece in highlight(model, text, ratio)
        ]
        for text in texts
    ]


def parse_nuggets(items: Sequence[s.NuggetsOut], model: NuggetModel, max_tokens: int) -> list[Nuggets]:
    """Return the nuggets of a request; raise InputError if they cannot be decoded or exceed `max_tokens` tokens."""
    parsed = [_parse_nuggets(item, index, model) for index, item in enumerate(items)]
    if (tokens := sum(item.token_count for item in parsed)) > max_tokens:
        raise InputError(f"nuggets represent {tokens} tokens; the limit is {max_tokens}.")
    return parsed


def _parse_nuggets(item: s.NuggetsOut, index: int, model: NuggetModel) -> Nuggets:
    size = model.dim
    vectors = [nugget.vector for nugget in item.nuggets]
    if not vectors or any(vector is None or len(vector) != size for vector in vectors):
        raise InputError(f"nuggets[{index}]: every nugget needs a vector of {size} numbers.")
    windows = np.array(item.windows, dtype=np.int64).reshape(-1, 4)
    count, tokens, start, end = windows.T
    if (
        (count < 1).any()
        or (count > tokens).any()
        or (tokens > model.decoder_window).any()
        or (start > end).any()
        or count.sum() != len(vectors)
    ):
        raise InputError(f"nuggets[{index}].windows are invalid or do not match its {len(vectors)} nuggets.")
    matrix = np.array(vectors, dtype=np.float32)
    scores = np.array([nugget.score for nugget in item.nuggets], dtype=np.float32)
    if not (np.isfinite(matrix).all() and np.isfinite(scores).all()):
        raise InputError(f"nuggets[{index}] contains numbers that are not finite.")
    layout = ORDINARY
    if item.layout is not None:
        if any(space.strip() for _, space in item.layout.runs):
            raise InputError(f"nuggets[{index}].layout contains more than white space.")
        layout = Layout(tuple(item.layout.words), tuple(item.layout.runs))
    return Nuggets(
        vectors=matrix,
        scores=scores,
        positions=np.array([nugget.position for nugget in item.nuggets], dtype=np.int64),
        spans=np.array([nugget.span for nugget in item.nuggets], dtype=np.int64).reshape(-1, 2),
        tokens=tuple(nugget.token for nugget in item.nuggets),
        windows=windows,
        layout=layout,
    )


def reconstruct(
    served: Served, request: s.ReconstructRequest, encoded: Sequence[Nuggets]
) -> s.ReconstructAnswer:
    """Decode the given nuggets, or those of the texts of a request."""
    model, coverage = served.model, Coverage()
    if request.texts is not None:
        with collecting(coverage):
            encoded = model.encode(request.texts, ratio=request.ratio)
    originals: Sequence[str | None] = request.texts or [None] * len(encoded)
    words: list[list[s.Word] | None] = [None] * len(encoded)
    if request.probabilities:
        decoded: list[Any] = model.reconstruct(
            encoded, num_beams=request.num_beams, return_probabilities=True
        )
        texts = [item.text for item in decoded]
        words = [
            [s.Word.model_validate(word, from_attributes=True) for word in item.words] for item in decoded
        ]
    else:
        texts = model.reconstruct(encoded, num_beams=request.num_beams)
    scores = map(_bleu, texts, originals)
    rows = zip(encoded, texts, scores, words, strict=True)
    return s.ReconstructAnswer(
        model=served.name,
        texts=[
            s.Reconstruction(text=text, bleu=score, vectors=len(item), words=text_words)
            for item, text, score, text_words in rows
        ],
        warning=coverage.message(),
    )


def _bleu(text: str, original: str | None) -> float | None:
    """Return BLEU from 0 to 100; None without an original or if sacrebleu is not installed."""
    if original is None:
        return None
    try:
        bleu = Bleu(effective_order=True)
    except MissingExtraError:
        return None
    if text == original:
        return 100.0
    return bleu.sentence(text, original)


def similarity(
    query: Nuggets, document: Nuggets, request: s.SimilarityRequest, model: str, warning: str | None
) -> s.SimilarityAnswer:
    """Return the score of two texts, all cosines, and BM25 for comparison."""
    cosines = unit(query, "query") @ unit(document, "document").T
    score, shared = _by_words(request.query, request.document)
    return s.SimilarityAnswer(
        model=model,
        score=float(maxsim(query.vectors, document.vectors)),
        matrix=cosines.tolist(),
        winners=cosines.argmax(1).tolist(),
        query=nuggets(query, with_vectors=False),
        document=nuggets(document, with_vectors=False),
        bm25=score,
        shared_words=shared,
        warning=warning,
    )


def _by_words(query: str, document: str) -> tuple[float | None, list[str]]:
    """Return BM25 of the document among the sentences of both texts, and the words they share."""
    try:
        from textnuggets.search.bm25 import BM25, words_of

        query_words, document_words = words_of([query, document])
        in_document = set(document_words)
        shared = list(dict.fromkeys(word for word in query_words if word in in_document))
        others = [text[start:end] for text in (query, document) for start, end in sentence_spans(text)]
        return float(BM25([document, *others]).scores(query)[0]), [word for word in shared if word]
    except MissingExtraError:
        return None, []


def gain(model: NuggetModel, request: s.GainRequest) -> s.GainAnswer | None:
    """Return the probability gain of one nugget over its window; None if the text has fewer nuggets."""
    import torch  # here, because only models with a decoder need it

    from textnuggets.analysis.attribution import probability_gain

    budget = Budget.of(request.ratio, None, model.config.ratio)
    (windows,) = cut_into_windows(model.tokenizer, [request.text], model.window)
    index = request.nugget  # within the remaining windows
    for window in windows:
        count = nugget_count(len(window.ids), budget.ratio)
        if index < count:
            ids = torch.tensor(window.ids, device=model.device)
            with model.evaluating(), torch.inference_mode():
                gains, _ = probability_gain(model, ids, ids, budget.ratio, alone=index)
            if not len(gains):
                return None
            tokens = [window.surface(i) for i in range(len(window.ids))]
            return s.GainAnswer(gain=gains[0].tolist(), tokens=tokens)
        index -= count
    return None


def hits(found: Sequence[Hit], full: bool, warning: str | None) -> s.SearchAnswer:
    """Return the hits of a search, with whole texts if they were asked for."""
    shown = []
    for hit in found:
        made = s.SearchHit(
            id=hit.id,
            score=hit.score,
            matches=[s.SearchMatch(**match._asdict()) for match in hit.matches],
            passages=[s.SearchPassage(**passage._asdict()) for passage in hit.passages],
            metadata=hit.metadata,
        )
        if full:  # fields that are not set are not sent
            made.text, made.regenerated = hit.text, hit.regenerated
        shown.append(made)
    return s.SearchAnswer(hits=shown) if warning is None else s.SearchAnswer(hits=shown, warning=warning)
