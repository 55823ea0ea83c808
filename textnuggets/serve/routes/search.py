"""The path that searches the index."""

from __future__ import annotations

from fastapi import APIRouter

from textnuggets.io.documents import is_unicode
from textnuggets.serve import responses
from textnuggets.serve import schemas as s
from textnuggets.serve.middleware import Refused
from textnuggets.serve.service import WRONG, Running, check_filled

router = APIRouter(responses=WRONG)


# Unset, not None, is left out: metadata and the text of a document may be null.
@router.post("/search", response_model_exclude_unset=True)
async def search(request: s.SearchRequest, service: Running) -> s.SearchAnswer:
    """Return the documents of the index that answer a query, with the stretches that do."""
    index, served = service.index, service.models.searching
    named = service.models.named(request.model)
    if index is None or served is None:
        raise Refused(404, "no index is served: start with --index.", None)
    if named not in (None, served):
        raise Refused(422, f"the index was built with {served.name!r}: no other model fits it.", "model")
    check_filled(query=request.query)
    await service.check_texts(served, query=[request.query])
    for item in (request.filter or {}).items():
        if not all(is_unicode(str(part)) for part in item):
            raise Refused(422, "filter holds half a surrogate pair: it is no text.", "filter")
    work = service.worker.run(lambda: index.search(request.query, request.k, request.filter))
    return responses.hits(await service.timed(work), service.models.warning(served))
