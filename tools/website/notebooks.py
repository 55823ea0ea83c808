"""Notebooks as pages of the site."""

from __future__ import annotations

import json
from pathlib import Path

LINK = "*This page is a notebook: [open or download it]({address}).*"


def notebook_page(path: Path, address: str) -> str:
    """Return a notebook as Markdown, with a link to the notebook itself below its heading."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    heading, _, rest = parts[0].partition("\n")
    return "\n\n".join([heading, LINK.format(address=address), rest, *parts[1:]]) + "\n"
