"""The page in a real browser: every tab, with mouse and keyboard."""

from __future__ import annotations

import re
import shutil
import socket
import threading
import time
from types import SimpleNamespace

import pytest
import uvicorn

from tests.tiny import CORPUS, tiny_model
from textnuggets import NuggetIndex
from textnuggets.serve.app import create_app

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
BROWSER = next(
    filter(
        None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))
    ),
    None,
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium, such as Debian's package chromium")
LONG = " ".join(CORPUS[:3] * 8)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def serve(app):
    """Run the app on a free port; return its address and a function that stops it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)

    def stop():
        server.should_exit = True
        thread.join()

    return f"http://127.0.0.1:{port}/", stop


def with_probabilities(model):
    """Return a `reconstruct` with a low probability only for the word "bridge."."""
    plain = type(model).reconstruct

    def reconstruct(nuggets, return_probabilities=False, **options):
        texts = plain(model, nuggets, **options)
        if not return_probabilities:
            return texts
        return [SimpleNamespace(text=text, words=[*map(word, re.finditer(r"\S+", text))]) for text in texts]

    def word(found):
        probability = 0.25 if found[0] == "bridge." else 0.9
        return SimpleNamespace(start=found.start(), end=found.end(), probability=probability)

    return reconstruct


@pytest.fixture(scope="module", autouse=True)
def probabilities(copier):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copier, "reconstruct", with_probabilities(copier))
        yield


@pytest.fixture(scope="module")
def address(copier, tmp_path_factory):
    index = NuggetIndex.create(tmp_path_factory.mktemp("paged") / "index", copier)
    facts = [{"n": i, "kind": None if i else ["letter"]} for i in range(6)]
    index.add([*(f"d{i}" for i in range(5)), "long"], [*CORPUS, LONG], facts)
    address, stop = serve(create_app({"tiny": copier}, index))
    yield address
    stop()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser, address):
    """The opened page; the test fails on script errors and on requests to other hosts."""
    context = browser.new_context()
    opened = context.new_page()
    errors, external = [], []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on(
        "request",
        lambda request: (
            external.append(request.url) if not request.url.startswith((address, "data:")) else None
        ),
    )
    opened.goto(address)
    expect(opened.locator("#about")).to_contain_text("index of 6 documents")
    yield opened
    context.close()
    assert not errors
    assert not external


def test_look_marks_nuggets_live_and_shows_the_gain_of_one(page, copier):
    page.fill("#look-text", CORPUS[0])
    page.locator("#look-ratio").fill("0.3")
    marks = page.locator("#look-out mark")
    few, more = (copier.encode(CORPUS[0], ratio=ratio) for ratio in (0.3, 0.6))
    expect(marks).to_have_count(len(few))
    expect(page.locator("#c-tokens")).to_have_text(str(few.token_count))
    expect(page.locator("#c-vectors")).to_have_text(str(len(few)))
    page.locator("#look-ratio").fill("0.6")
    expect(page.locator("#look-ratio-out")).to_have_text("0.60")
    expect(marks).to_have_count(len(more))
    assert "".join(page.locator("#look-out > :not(.special)").all_text_contents()) == CORPUS[0]

    marks.nth(1).hover()
    assert page.locator("#look-out .segment").count()
    marks.nth(1).click()
    expect(marks.nth(1)).to_have_attribute("aria-pressed", "true")
    page.click("#gain-go")
    expect(page.locator("#curve")).to_be_visible()
    expect(page.locator("#curve")).to_have_attribute("aria-label", re.compile("Largest gain"))
    expect(page.locator("#curve-told")).to_contain_text("Largest gain")
    marks.nth(0).click()
    expect(page.locator("#curve-told")).to_be_empty()


def test_rebuild_shows_the_text_its_bleu_and_what_changed(page):
    page.click("#tab-rebuild")
    page.fill("#rebuild-text", CORPUS[1])
    page.locator("#rebuild-ratio").fill("0.5")
    page.click("#rebuild-go")
    expect(page.locator("#rebuild-bleu")).to_have_text("100.0")
    expect(page.locator("#rebuild-right")).to_have_text(CORPUS[1])
    expect(page.locator("#rebuild-left del")).to_have_count(0)
    doubt = page.locator("#rebuild-right .doubt")
    expect(doubt).to_have_text(["bridge."])
    expect(doubt).to_have_attribute("title", "probability 0.25")
    expect(page.locator("#rebuild-doubts")).to_have_text("1 doubtful word, underlined")
    page.fill("#rebuild-text", CORPUS[1] + " zebra")
    page.click("#rebuild-go")
    expect(page.locator("#rebuild-bleu")).not_to_have_text("100.0")
    assert page.locator("#rebuild-left del, #rebuild-right ins").count()


def test_compare_joins_every_query_nugget_to_its_match(page):
    page.click("#tab-compare")
    page.fill("#compare-a", CORPUS[0])
    page.fill("#compare-b", CORPUS[0])
    page.click("#compare-go")
    expect(page.locator("#compare-score")).to_have_text("1.0000")
    assert page.locator("#lines line").count() == page.locator("#chips-a .chip").count() > 0
    expect(page.locator("#compare-words")).to_contain_text("words in common")


def test_search_shows_the_passages_of_a_hit_with_their_scores(page):
    page.click("#tab-search")
    page.fill("#search-query", CORPUS[2])
    page.keyboard.press("Enter")
    hit = page.locator("#hits article", has=page.locator("h3", has_text="d2"))
    expect(hit.locator(".passage .text")).to_have_text(CORPUS[2])
    expect(hit.locator(".passage .score")).to_have_text(re.compile(r"1\.000\d|0\.999\d"))


def test_search_shows_the_whole_text_on_demand_with_its_passages_marked(page):
    page.click("#tab-search")
    page.fill("#search-query", "The cat sat.")
    page.keyboard.press("Enter")
    long = page.locator("#hits article", has=page.locator("h3", has_text="long"))
    expect(long.locator(".passage .text")).to_have_count(3)
    passages = long.locator(".passage .text").all_inner_texts()
    long.get_by_role("button", name="Show the whole text").click()
    expect(long.locator(".more")).to_have_count(0)
    expect(long.locator(".text")).to_have_text(LONG)
    assert sorted(long.locator("mark").all_inner_texts()) == sorted(passages)


def test_search_shows_metadata_and_filters_by_it(page):
    hits = page.locator("#hits article")
    page.click("#tab-search")
    page.fill("#search-query", CORPUS[3])
    page.keyboard.press("Enter")
    expect(hits).to_have_count(6)
    hits.first.get_by_role("button", name="n=3").click()
    expect(hits).to_have_count(1)
    page.fill("#search-filter", "kind=letter")
    page.keyboard.press("Enter")
    expect(page.locator("#hits")).to_have_text("No documents found.")
    page.locator("#search-filters button", has_text="n=3").click()
    expect(hits.locator("h3")).to_contain_text(["d0"])
    page.locator("#search-filters button").click()
    expect(hits).to_have_count(6)
    page.fill("#search-least", "0.99")
    page.keyboard.press("Enter")
    expect(hits.locator("h3")).to_contain_text(["d3"])
    page.fill("#search-filter", "letter")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("#error")).to_have_text("write the filter as key=value.")


def test_an_error_is_shown_and_the_next_request_clears_it(page):
    page.click("#tab-search")
    page.fill("#search-query", "")
    page.keyboard.press("Enter")
    expect(page.locator("#error")).not_to_be_empty()
    # A late response in another tab does not clear it.
    page.evaluate("busy('look', null, async () => {})")
    expect(page.locator("#error")).not_to_be_empty()
    page.fill("#search-query", CORPUS[3])
    page.keyboard.press("Enter")
    expect(page.locator("#error")).to_be_empty()


def test_everything_can_be_reached_by_keyboard(page):
    page.locator("#tab-look").focus()
    for name in ("rebuild", "compare", "search", "look"):
        page.keyboard.press("ArrowRight")
        expect(page.locator(f"#tab-{name}")).to_be_focused()
        expect(page.locator(f"#{name}")).to_be_visible()
        assert page.locator("[role=tabpanel]:visible").count() == 1
    mark = page.locator("#look-out mark").first
    mark.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#look-out mark").nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#look-out mark").nth(1)).to_have_attribute("aria-pressed", "true")


def test_a_phone_shows_the_page_without_horizontal_scrolling_and_in_dark_mode(browser, address):
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme="dark")
    page = context.new_page()
    page.goto(address)
    expect(page.locator("#look-out mark").first).to_be_visible()
    for name in ("look", "rebuild", "compare", "search"):
        page.click(f"#tab-{name}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(22, 24, 28)"
    context.close()


def test_a_server_with_a_key_asks_for_it(browser, copier):
    address, stop = serve(create_app({"tiny": copier}, api_key="secret"))
    try:
        page = browser.new_page()
        page.goto(address)
        expect(page.locator("#key")).to_be_visible()
        page.fill("#key", "secret")
        page.fill("#look-text", CORPUS[0])
        expect(page.locator("#look-out mark").first).to_be_visible()
        page.close()
    finally:
        stop()


def test_line_breaks_show_as_line_breaks(page):
    text = CORPUS[1].replace("; ", ";\n")
    page.fill("#look-text", text)
    expect(page.locator("#look-out mark").first).to_be_visible()
    expect(page.locator("#look-out")).to_contain_text("night;\nin", use_inner_text=True)
    page.click("#tab-rebuild")
    page.fill("#rebuild-text", text)
    page.click("#rebuild-go")
    expect(page.locator("#rebuild-left")).to_have_text(text, use_inner_text=True)
    page.click("#tab-compare")
    page.fill("#compare-a", text)
    page.locator("#compare-ratio").fill("0.02")
    page.click("#compare-go")
    expect(page.locator("#chips-a .chip").first).to_contain_text("night;\nin", use_inner_text=True)


@pytest.fixture
def several(copier, monkeypatch):
    """A model for comparing and one with a decoder."""
    encoder = tiny_model("bert")
    monkeypatch.setattr(encoder.config, "objective", "contrastive")
    monkeypatch.setattr(encoder.config, "query_ratio", 0.6)
    monkeypatch.setattr(copier.config, "objective", "autoencode")
    return {"encoder": encoder, "decoder": copier}


def open_page(browser, models):
    address, stop = serve(create_app(models))
    page = browser.new_page()
    page.goto(address)
    expect(page.locator("#about")).to_have_text(", ".join(models))
    return page, lambda: (page.close(), stop())


def test_every_tab_offers_the_models_that_fit_it(browser, several):
    page, close = open_page(browser, {**several, "second": several["encoder"]})
    try:
        offered = {
            tab: page.locator(f"#{tab}-model option").all_text_contents()
            for tab in ("look", "rebuild", "compare")
        }
        assert offered == {
            "look": ["encoder", "decoder", "second"],
            "rebuild": ["decoder"],
            "compare": ["encoder", "second"],
        }
        marks = page.locator("#look-out mark")
        page.fill("#look-text", CORPUS[0])
        page.locator("#look-ratio").fill("0.5")
        for name, decodes in (("encoder", False), ("decoder", True)):
            page.select_option("#look-model", name)
            expect(marks).to_have_count(len(several[name].encode(CORPUS[0], ratio=0.5)))
            page.wait_for_timeout(400)  # until drawing has finished
            marks.first.click()
            assert page.locator("#gain-go").is_visible() is decodes
        page.click("#tab-rebuild")
        expect(page.locator("#rebuild-model")).to_be_hidden()
        page.click("#tab-compare")
        expect(page.locator("#compare-model")).to_be_visible()
        expect(page.locator("#compare-ratio-label")).to_have_text("Ratio of the document (query: 0.6)")
        page.click("#compare-go")
        expect(page.locator("#compare-score")).not_to_have_text("-")
        expect(page.locator("#compare-warning")).to_be_hidden()
        page.click("#tab-search")
        expect(page.locator("#search-note")).to_contain_text("--index")
    finally:
        close()


def test_a_tab_without_a_fitting_model_says_which_to_add(browser, several):
    page, close = open_page(browser, {"encoder": several["encoder"]})
    try:
        page.click("#tab-rebuild")
        expect(page.locator("#rebuild-note")).to_contain_text("--model reconstruct")
        expect(page.locator("#rebuild-go")).to_be_disabled()
    finally:
        close()
    page, close = open_page(browser, {"decoder": several["decoder"]})
    try:
        page.click("#tab-compare")
        expect(page.locator("#compare-note")).to_contain_text("--model search")
        page.click("#compare-go")
        expect(page.locator("#compare-warning")).to_contain_text("not to compare them")
    finally:
        close()
