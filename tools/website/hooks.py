"""Hooks of MkDocs: add pages from outside `docs`, and turn links into the repository into links of the site.

The pages are written for the repository. A link to a file that the site does not have becomes one to GitHub.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.website import reference
from tools.website.notebooks import notebook_page

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://github.com/textnuggets/textnuggets"
HOMES = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "log.md": "LOG.md",
    "security.md": "SECURITY.md",
    "models/search.md": "textnuggets/models/search/README.md",
    "models/reconstruct.md": "models/textnuggets_models/reconstruct/README.md",
    "models/lm.md": "models/textnuggets_models/lm/README.md",
} | {
    f"notebooks/{path.stem}.md": f"docs/notebooks/{path.name}"
    for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")
}
"""Pages of the site whose source is outside `docs`, or a notebook."""
GENERATED = {
    "reference/python.md": reference.python_page,
    "reference/command-line.md": reference.command_line_page,
    "reference/http.md": reference.http_page,
    "reference/recipes.md": reference.recipes_page,
}
COPIED = "bench/results"
FENCED = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
# Python-Markdown wants four spaces where GitHub takes two, and a blank line before an item after a paragraph of the last one.
INDENT = re.compile(r"^ {1,3}(?=\S)", re.MULTILINE)
NEXT_ITEM = re.compile(r"(?<=\n\n)((?: +\S.*\n)+)(?=[-*] )")
LINK = re.compile(r"(\]\()([^)\s]+)(\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside `docs`, notebooks, the generated pages, and the benchmark results that pages link to."""
    for uri, home in HOMES.items():
        if home.endswith(".ipynb"):
            text = notebook_page(ROOT / home, f"{REPOSITORY}/blob/main/{home}")
        else:
            text = (ROOT / home).read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=text))
    for uri, write in GENERATED.items():
        files.append(File.generated(config, uri, content=write()))
    for path in sorted((ROOT / COPIED).iterdir()):
        files.append(File.generated(config, f"{COPIED}/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: object) -> str:
    """Turn the links of a page into links of the site; keep tables of results out of its search."""
    uri = page.file.src_uri
    if uri.startswith("results/"):
        page.meta["search"] = {"exclude": True}
        markdown = f"# {uri.removesuffix('.md')}\n\n{markdown}"
    if uri in GENERATED:
        return markdown
    home = HOMES.get(uri, f"docs/{uri}")
    parts = FENCED.split(markdown)  # every other part is a block of code
    for i in range(0, len(parts), 2):
        parts[i] = LINK.sub(lambda link: f"{link[1]}{_target(link[2], home, uri, files)}{link[3]}", parts[i])
        parts[i] = NEXT_ITEM.sub(r"\1\n", INDENT.sub(r"\g<0>\g<0>", parts[i]))
    return "".join(parts)


def _target(link: str, home: str, uri: str, files: Files) -> str:
    """Return the link of the page `uri` for a link of its source `home`."""
    if link.startswith(("#", "https://")):
        return link
    path, sharp, anchor = link.partition("#")
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(home), path))
    there = next((page for page, source in HOMES.items() if source == wanted), wanted.removeprefix("docs/"))
    if files.get_file_from_path(there) is not None:
        return posixpath.relpath(there, posixpath.dirname(uri) or ".") + sharp + anchor
    kind = "tree" if (ROOT / wanted).is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{wanted}{sharp}{anchor}"
