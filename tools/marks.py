"""Generated tables in Markdown pages, each between the marks `<!-- NAME:start -->` and `<!-- NAME:end -->`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping


def fill_marks(page: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """Return a page with its tables regenerated; marks with other names are left alone."""
    return re.sub(
        rf"(<!-- ({'|'.join(tables)}):start -->\n).*?(<!-- \2:end -->)",
        lambda match: f"{match[1]}{tables[match[2]]()}\n{match[3]}",
        page,
        flags=re.DOTALL,
    )
