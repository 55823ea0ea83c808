"""Routes in the formats of OpenAI, Cohere and Jina."""

from __future__ import annotations

import asyncio
import uuid

from fastapi import APIRouter

from textnuggets.serve import responses
from textnuggets.serve import standard_schemas as standard
from textnuggets.serve.service import ERRORS, Running, check_filled

router = APIRouter(prefix="/v1", responses=ERRORS)


@router.get("/models", response_model_exclude_none=True)
async def models(service: Running) -> standard.ModelsAnswer:
    """Return the served models, in OpenAI's format."""
    searching = service.models.searching
    return standard.ModelsAnswer(data=[responses.model(item, item is searching) for item in service.models])


@router.post("/embeddings", response_model_exclude_none=True)
async def embeddings(request: standard.EmbeddingsRequest, service: Running) -> standard.EmbeddingsAnswer:
    """Return the vectors of texts, in OpenAI's format; `embedding` is a list of vectors."""
    served = service.models.comparing(request.model)
    texts = [request.input] if isinstance(request.input, str) else request.input
    cut = await service.check_texts(served, input=texts)
    vectors = sum(served.most_vectors(cut, texts, request.ratio))
    service.check_answer(vectors * served.model.dim, "input")
    encoded = await service.timed(service.worker.encode(served.model, texts, request.ratio, cut))
    return await asyncio.to_thread(responses.embeddings, encoded, request, served.name)


@router.post("/rerank", response_model_exclude_none=True)
async def rerank(request: standard.RerankRequest, service: Running) -> standard.RerankAnswer:
    """Rank documents by their mean-MaxSim with a query, in the format shared by Cohere and Jina."""
    served = service.models.comparing(request.model)
    texts = [item if isinstance(item, str) else item.text for item in request.documents]
    check_filled(query=request.query)
    cut = await service.check_texts(served, query=[request.query], documents=texts)
    (rows,) = served.most_vectors(cut, [request.query], served.model.config.ratio_of_queries(request.ratio))
    service.check_answer(rows * max(served.most_vectors(cut, texts, request.ratio)), "documents")
    pair = service.worker.encode_pair(served.model, request.query, texts, request.ratio, cut)
    query, encoded = await service.timed(pair)
    return await asyncio.to_thread(
        responses.rerank,
        query,
        encoded,
        texts,
        request,
        model=served.name,
        answer_id=uuid.uuid4().hex,
        warning=service.models.warning(served),
    )
