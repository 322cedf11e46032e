"""A link into the app as the very first request after the server has started, in either language."""

from playwright.sync_api import Page, expect

from kvviz.locale import translator
from kvviz.ui.shell import PAGES

ZH = translator("zh-TW")


def test_the_first_request_shows_the_page_in_its_frame_and_language(page: Page, fresh_server: str, settle) -> None:
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    page.goto(f"{fresh_server}/growth?lang=zh-TW")
    _is_growth_in_chinese(page)
    page.reload()
    _is_growth_in_chinese(page)
    settle(page)
    assert "lang=zh-TW" in page.url
    assert {url for url in asked if not url.startswith((fresh_server, "data:", "blob:"))} == set()


def test_the_language_switch_keeps_the_page_and_its_inputs(page: Page, settle) -> None:
    page.goto("/growth?new=16")
    expect(page.get_by_role("heading", level=1)).to_have_text("Cache growth")
    page.get_by_label("Prompt", exact=True).fill("Bonjour")
    page.get_by_role("radio", name="繁體中文").click()
    _is_growth_in_chinese(page)
    expect(page.get_by_label(ZH("Prompt"), exact=True)).to_have_value("Bonjour")
    expect(page.get_by_role("slider", name=ZH("New tokens"))).to_have_value("16")
    settle(page)
    assert "lang=zh-TW" in page.url and "/growth" in page.url
    # and the first click counts on the next page too
    page.get_by_test_id("stSidebarNavLink").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("kvviz")
    expect(page.get_by_text(ZH("Look closer"))).to_be_visible()
    page.get_by_role("radio", name="English").click()
    expect(page.get_by_text("Look closer")).to_be_visible()


def _is_growth_in_chinese(page: Page) -> None:
    title = ZH("Cache growth")
    assert title != "Cache growth"
    expect(page.get_by_role("heading", level=1)).to_have_text(title, timeout=60_000)
    sidebar = page.get_by_test_id("stSidebar")
    links = sidebar.get_by_test_id("stSidebarNavLink")
    expect(links).to_contain_text([ZH(entry.title) for entry in PAGES])
    expect(sidebar.get_by_role("radio", name="繁體中文")).to_be_checked()
    expect(sidebar.get_by_role("combobox", name=ZH("Model"))).to_have_value("SmolLM2 135M Instruct", timeout=60_000)
    expect(page.get_by_test_id("stException")).to_have_count(0)
