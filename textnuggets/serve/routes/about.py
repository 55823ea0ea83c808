"""Routes of the web page and the health check."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from textnuggets import __version__
from textnuggets.serve import schemas as s
from textnuggets.serve.service import Running

PAGE = Path(__file__).parent.parent / "page.html"
router = APIRouter()


@router.get("/health", response_model_exclude_none=True)
async def health(service: Running) -> s.Health:
    """Return the status of the server and its models."""
    first = service.models.first
    return s.Health(
        model=first.name,
        decodes=first.decodes,
        ratio=first.model.config.ratio,
        dimensions=first.model.value.out_features,
        models=[served.name for served in service.models],
        documents=service.documents,
        version=__version__,
    )


@router.get("/", response_class=HTMLResponse, include_in_schema=False)
async def page() -> str:
    """Return the web page."""
    return PAGE.read_text(encoding="utf-8")
