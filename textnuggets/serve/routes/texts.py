"""Routes for texts and nuggets: encode, decode, compare and explain."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter

from textnuggets.errors import InputError
from textnuggets.model.nuggets import Nuggets
from textnuggets.serve import responses
from textnuggets.serve import schemas as s
from textnuggets.serve.middleware import Refused
from textnuggets.serve.service import ERRORS, Running, check_filled

router = APIRouter(responses=ERRORS)


@router.post("/nuggets", response_model_exclude_none=True)
async def nuggets(request: s.NuggetsRequest, service: Running) -> s.NuggetsAnswer:
    """Return the nuggets of texts: vectors, tokens, spans and scores; with `pieces`, also all tokens to highlight."""
    served = service.models.any(request.model)
    cut = await service.check_texts(served, texts=request.texts)
    if request.vectors:
        vectors = sum(served.most_vectors(cut, request.texts, request.ratio))
        service.check_answer(vectors * served.model.dim, "texts")
    if request.pieces:
        work = service.worker.run(
            lambda: responses.with_pieces(served.model, request.texts, request.ratio), cut
        )
        encoded, pieces = await service.timed(work)
    else:
        encoding = service.worker.encode(served.model, request.texts, request.ratio, cut)
        encoded, pieces = await service.timed(encoding), None
    out = await asyncio.to_thread(lambda: [responses.nuggets(item, request.vectors) for item in encoded])
    if pieces is not None:
        out = [
            item.model_copy(update={"pieces": text_pieces})
            for item, text_pieces in zip(out, pieces, strict=True)
        ]
    return s.NuggetsAnswer(model=served.name, texts=out)


@router.post("/reconstruct", response_model_exclude_none=True)
async def reconstruct(request: s.ReconstructRequest, service: Running) -> s.ReconstructAnswer:
    """Decode nuggets, or encode texts and decode them again."""
    served, limits = service.models.decoding(request.model), service.limits
    if (request.texts is None) == (request.nuggets is None):
        raise Refused(422, "set either texts or nuggets.", "texts")
    given: list[Nuggets] = []
    cut = None
    if request.texts is not None:
        cut = await service.check_texts(served, texts=request.texts)
    elif len(request.nuggets or ()) > limits.texts:
        message = f"nuggets has {len(request.nuggets or ())} texts; the limit is {limits.texts}."
        raise Refused(422, message, "nuggets")
    try:
        if request.nuggets is not None:
            given = await asyncio.to_thread(
                responses.parse_nuggets, request.nuggets, served.decoder, limits.tokens
            )
        return await service.timed(
            service.worker.run(lambda: responses.reconstruct(served, request, given), cut)
        )
    except InputError as error:
        raise Refused(422, str(error), "nuggets" if request.texts is None else "texts") from error


@router.post("/similarity", response_model_exclude_none=True)
async def similarity(request: s.SimilarityRequest, service: Running) -> s.SimilarityAnswer:
    """Compare two texts: mean-MaxSim, all cosines, and the best match of each query nugget."""
    served = service.models.comparing(request.model)
    check_filled(query=request.query, document=request.document)
    cut = await service.check_texts(served, query=[request.query], document=[request.document])
    documents = [request.document]
    (rows,) = served.most_vectors(cut, [request.query], served.model.config.ratio_of_queries(request.ratio))
    (columns,) = served.most_vectors(cut, documents, request.ratio)
    service.check_answer(rows * columns * 8, "document")
    pair = service.worker.encode_pair(served.model, request.query, documents, request.ratio, cut)
    query, (document,) = await service.timed(pair)
    warning = service.models.warning(served)
    return await asyncio.to_thread(responses.similarity, query, document, request, served.name, warning)


@router.post("/gain")
async def gain(request: s.GainRequest, service: Running) -> s.GainAnswer:
    """Return how much one nugget alone raises the probability of each token of its window."""
    served = service.models.decoding(request.model)
    cut = await service.check_texts(served, text=[request.text])
    answer = await service.timed(service.worker.run(lambda: responses.gain(served.decoder, request), cut))
    if answer is None:
        raise Refused(422, f"there is no nugget {request.nugget}: the text has fewer nuggets.", "nugget")
    return answer
