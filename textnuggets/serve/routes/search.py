"""Route that searches the index."""

from __future__ import annotations

from fastapi import APIRouter

from textnuggets.io.documents import is_unicode
from textnuggets.serve import responses
from textnuggets.serve import schemas as s
from textnuggets.serve.middleware import Refused
from textnuggets.serve.service import ERRORS, Running, check_filled

router = APIRouter(responses=ERRORS)


# Exclude unset fields rather than None: metadata and the text of a document may be null.
@router.post("/search", response_model_exclude_unset=True)
async def search(request: s.SearchRequest, service: Running) -> s.SearchAnswer:
    """Return the documents that match a query best, with the passages that match."""
    index, served = service.index, service.models.searching
    named = service.models.named(request.model)
    if index is None or served is None:
        raise Refused(404, "no index is served: start the server with --index.", None)
    if named not in (None, served):
        raise Refused(422, f"the index was built with {served.name!r}: use that model, or none.", "model")
    check_filled(query=request.query)
    if request.hybrid and not index.manifest.words:
        raise Refused(
            422, "the index has no words: build it again with 'textnuggets index --words'.", "hybrid"
        )
    cut = await service.check_texts(served, query=[request.query])
    for item in (request.filter or {}).items():
        if not all(is_unicode(str(part)) for part in item):
            raise Refused(422, "filter is not valid Unicode: it contains an unpaired surrogate.", "filter")
    work = service.worker.run(
        lambda: index.search(
            request.query, request.k, request.filter, request.min_score, request.full, request.hybrid
        ),
        cut,
    )
    return responses.hits(await service.timed(work), request.full, service.models.warning(served))
