"""The documentation site: it is built strictly, and every link, name, command, path and recipe leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import textnuggets
from tests.pages import ROOT

pytest.importorskip("mkdocs", reason="needs textnuggets[docs]")
pytest.importorskip("material", reason="needs textnuggets[docs]")
pytest.importorskip("mkdocstrings", reason="needs textnuggets[docs]")
REPOSITORY = re.compile(r"https://github\.com/textnuggets/textnuggets/(?:blob|tree)/main/(.+)")
PLACED = {"a": "href", "img": "src", "script": "src", "link": "href"}


class Links(HTMLParser):
    """Collects the anchors of a page, its links, and the files that a browser would load for it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors |= {given[key] for key in ("id", "name") if given.get(key)}
        if (link := given.get(PLACED.get(tag, ""))) is None or given.get("rel") == "canonical":
            return
        (self.links if tag == "a" else self.loaded).append(link)


def build(folder, root=ROOT):
    """Build the site of a checkout into a folder."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def broken(pages):
    """Return the links of a built site that lead nowhere, each with its page."""
    found = []
    for page, read in pages.items():
        for link in [*read.links, *read.loaded]:
            if inside := REPOSITORY.fullmatch(urldefrag(link)[0]):
                if not (ROOT / inside[1]).exists():
                    found.append((page.name, link))
            elif not re.match(r"[a-z]+:", link):
                path, anchor = map(unquote, urldefrag(link))
                target = (page.parent / path).resolve() if path else page
                known = pages[target].anchors if target in pages else set()
                if not target.exists() or (anchor and anchor not in known):
                    found.append((page.name, link))
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site").resolve()
    done = build(folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder


@pytest.fixture(scope="module")
def pages(site):
    """The built pages; 404.html has links for the address it is published at."""
    return {path: Links(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def test_every_link_and_anchor_of_the_built_pages_leads_somewhere(site, pages):
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= {f"{page.stem}.md" for page in pages}
    assert broken(pages) == []
    pages[site / "index.html"].links += ["search.html#nowhere", "nowhere.html"]
    try:
        assert len(broken(pages)) == 2
    finally:
        del pages[site / "index.html"].links[-2:]


def test_the_pages_load_nothing_from_other_hosts(pages):
    assert [
        link for read in pages.values() for link in read.loaded if re.match(r"(?:[a-z]+:)?//", link)
    ] == []


def test_no_list_or_table_is_left_as_text(pages):
    for page in pages:
        text = re.sub(r"<pre.*?</pre>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for paragraph in re.findall(r"<p>(.*?)</p>", text, re.DOTALL):
            assert not re.search(r"^\s*(?:[-*] |\d+\. |\|)", paragraph, re.MULTILINE), (
                f"{page.name}: {paragraph}"
            )


def test_the_reference_of_python_has_every_public_name(site, pages):
    anchors = pages[site / "reference" / "python.html"].anchors
    assert {f"{home}.{name}" for name, home in textnuggets._HOMES.items()} <= anchors
    assert "textnuggets.model.modeling.NuggetModel.encode" in anchors


def test_the_reference_of_the_command_line_has_every_option(site):
    import typer.main

    from textnuggets.cli import app

    def leaves(name, command):
        for word, inner in getattr(command, "commands", {}).items():
            yield from leaves(f"{name} {word}", inner)
        if not hasattr(command, "commands"):
            yield name, command

    text = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    for name, command in leaves("textnuggets", typer.main.get_command(app)):
        assert f">{name}<" in text, name
        section = text.split(f">{name}<")[-1].split("</table>")[0]
        for option in (opt for given in command.params for opt in given.opts if opt.startswith("--")):
            assert re.search(rf"<code>[^<]*{option}\b", section), f"{name} {option}"


def test_the_reference_of_http_has_every_path(site, pages):
    from textnuggets.serve.app import ROUTERS

    text = (site / "reference" / "http.html").read_text(encoding="utf-8")
    for router in ROUTERS:
        for route in router.routes:
            if route.include_in_schema:
                assert f"{next(iter(route.methods))} {route.path}<" in text
    assert {"EmbeddingsRequest", "ErrorAnswer"} <= pages[site / "reference" / "http.html"].anchors


def test_the_reference_of_recipes_has_every_recipe_and_plan(site, pages):
    anchors = pages[site / "reference" / "recipes.html"].anchors
    package = Path(textnuggets.__file__).parent
    for kind in ("recipe", "plan"):
        assert {f"{kind}-{path.stem}" for path in (package / f"{kind}s").glob("*.toml")} <= anchors
