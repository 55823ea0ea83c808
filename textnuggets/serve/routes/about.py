"""Routes of the web page, the reference of the API and the health check."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from textnuggets import __version__
from textnuggets.serve import schemas as s
from textnuggets.serve.reference import POLICY, reference
from textnuggets.serve.service import ERRORS, Running

PAGE = Path(__file__).parent.parent / "page.html"
router = APIRouter()


@router.get("/health", response_model_exclude_none=True, responses={421: ERRORS[421]})
async def health(service: Running) -> s.Health:
    """Return the status of the server and its models."""
    first = service.models.first
    return s.Health(
        model=first.name,
        decodes=first.decodes,
        ratio=first.model.config.ratio,
        dimensions=first.model.dim,
        models=[served.name for served in service.models],
        documents=service.documents,
        version=__version__,
    )


@router.get("/", response_class=HTMLResponse, include_in_schema=False)
async def page() -> str:
    """Return the web page."""
    return PAGE.read_text(encoding="utf-8")


@router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """Return the reference of the API."""
    return HTMLResponse(reference(request.app.openapi()), headers=POLICY)
