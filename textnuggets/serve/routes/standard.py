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
    await service.check_texts(served, input=texts)
    encoded = await service.timed(service.worker.encode(served.model, texts, request.ratio))
    service.check_answer(sum(item.vectors.size for item in encoded), "input")
    return await asyncio.to_thread(responses.embeddings, encoded, request, served.name)


@router.post("/rerank", response_model_exclude_none=True)
async def rerank(request: standard.RerankRequest, service: Running) -> standard.RerankAnswer:
    """Rank documents by their mean-MaxSim with a query, in the format shared by Cohere and Jina."""
    served = service.models.comparing(request.model)
    texts = [item if isinstance(item, str) else item.text for item in request.documents]
    check_filled(query=request.query)
    await service.check_texts(served, query=[request.query], documents=texts)
    pair = service.worker.encode_pair(served.model, request.query, texts, request.ratio)
    query, encoded = await service.timed(pair)
    service.check_answer(len(query) * max(map(len, encoded)), "documents")
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
