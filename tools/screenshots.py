"""python -m tools.screenshots [INDEX]: take a screenshot of every tab of the page in Chromium, into docs/page.

Needs `pip install playwright` and Chromium. INDEX is the index for the last tab; without it that tab is skipped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

PICTURES = Path(__file__).parent.parent / "docs" / "page"
TEXT = (
    "Rain fell all night, and in the morning the river had risen above the old stone bridge. Farmers moved their "
    "cattle to the hills, while the mayor, who had seen two floods before, ordered the school to be opened for "
    "families from the lower streets.\nBy noon the water reached the market; nobody was hurt."
)
OTHER = (
    "After a night of heavy rain the town by the river was flooded. The school took in people whose houses stood low, "
    "and the animals were driven uphill. There were no injuries."
)
QUERY = "what happens when a run is killed half-way?"
TO_TOP = "document.querySelectorAll('textarea, html').forEach(part => part.scrollTo(0, 0))"
PATIENCE = 120_000  # timeout in milliseconds for an answer of the model


@contextmanager
def serving(index: str | None) -> Iterator[str]:
    """Run `textnuggets serve` with both shipped models on a free port; yield its address."""
    command = [
        sys.executable,
        "-m",
        "textnuggets",
        "serve",
        *("--model", "search", "--model", "reconstruct"),
        *("--port", "0"),
        *(["--index", index] if index else []),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            for line in server.stderr:
                if found := re.match(r"(http://\S+) ", line):
                    yield found[1]
                    return
            raise SystemExit("the server did not start")
        finally:
            server.terminate()


def look(page: Page) -> None:
    """Show a chosen nugget with its gain curve, which needs a model with a decoder."""
    page.select_option("#look-model", "reconstruct")
    page.fill("#look-text", TEXT)
    page.locator("#look-ratio").fill("0.1")
    marks = page.locator("#look-out mark")
    marks.nth(3).wait_for(timeout=PATIENCE)
    page.wait_for_timeout(1000)  # let answers to earlier changes arrive
    marks.nth(1).click()
    page.click("#gain-go")
    page.locator("#curve").wait_for(timeout=PATIENCE)


def rebuild(page: Page) -> None:
    """Show a text decoded from few vectors, with uncertain words marked."""
    page.fill("#rebuild-text", TEXT)
    page.locator("#rebuild-ratio").fill("0.1")
    page.click("#rebuild-go")
    page.wait_for_function("document.querySelector('#rebuild-bleu').textContent != '-'", timeout=PATIENCE)


def compare(page: Page) -> None:
    """Show two accounts of a flood."""
    page.fill("#compare-a", OTHER)
    page.fill("#compare-b", TEXT)
    page.locator("#compare-ratio").fill("0.1")
    page.click("#compare-go")
    page.locator("#lines line").first.wait_for(state="attached", timeout=PATIENCE)


def search(page: Page) -> None:
    """Show hits with their passages."""
    page.fill("#search-query", QUERY)
    page.keyboard.press("Enter")
    page.locator("#hits article").first.wait_for(timeout=PATIENCE)


TABS = {"look": look, "rebuild": rebuild, "compare": compare, "search": search}


def main() -> None:
    """Take a screenshot of every tab, and one of the first tab on a phone with a dark theme."""
    index = sys.argv[1] if len(sys.argv) > 1 else None
    PICTURES.mkdir(exist_ok=True)
    with serving(index) as address, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 640})
        for name, act in TABS.items():
            if name == "search" and index is None:
                continue
            page.goto(address)
            page.click(f"#tab-{name}")
            act(page)
            page.evaluate(TO_TOP)
            page.screenshot(path=PICTURES / f"{name}.png", full_page=name != "search")
        phone = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark")
        page = phone.new_page()
        page.goto(address)
        look(page)
        page.evaluate(TO_TOP)
        page.screenshot(path=PICTURES / "phone.png")
        browser.close()


if __name__ == "__main__":
    main()
