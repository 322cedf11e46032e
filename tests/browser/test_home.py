"""Home: a real model at work on arrival, the way to every page, and no word to any other machine."""

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.growth_page import LOADED_MS

NEW_TOKENS = 32


def test_the_model_is_at_work_on_arrival(page: Page, settle) -> None:
    page.goto("/")
    grid = page.locator(".st-key-home_grid .kvviz")
    expect(grid).not_to_have_attribute("data-seen", "0", timeout=LOADED_MS)
    expect(grid).to_have_attribute("data-live", "false", timeout=LOADED_MS)
    settle(page)
    prompt = page.locator(".st-key-home_strip .list .token.user").count()
    written = page.locator(".st-key-home_strip .list .token.generated").count()
    seen = int(grid.get_attribute("data-seen"))
    assert written == NEW_TOKENS and seen == page.locator(".st-key-home_strip .list .token").count() - 1
    assert set(grid.get_attribute("data-stored").split(",")) == {str(seen)} and prompt > 1
    size = f"{46_080 * seen / 1024**2:.2f} MiB" if 46_080 * seen >= 1024**2 else f"{46_080 * seen / 1024:,.0f} KiB"
    expect(page.get_by_text(f"Its cache now holds {seen} tokens in 30 layers: {size}.")).to_be_visible()


def test_links_lead_to_each_page(page: Page, settle) -> None:
    page.goto("/")
    links = page.get_by_test_id("stMain").get_by_test_id("stPageLink-NavLink")
    expect(links.first).to_be_visible(timeout=LOADED_MS)
    settle(page)
    titles, others = _titles(links), _titles(page.get_by_test_id("stSidebarNavLink"))
    assert titles == others[1:] != []
    for index, title in enumerate(titles):
        links.nth(index).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        settle(page)
        page.goto("/")


@pytest.mark.parametrize("path", ["/", "/growth"])
def test_nothing_is_asked_of_another_machine(page: Page, base_url: str, settle, path: str) -> None:
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    page.on("websocket", lambda socket: asked.add(socket.url))
    page.goto(path)
    expect(page.locator(".kvviz").first).to_be_visible(timeout=LOADED_MS)
    settle(page)
    hosts = {urlsplit(url).netloc for url in asked if urlsplit(url).scheme in ("http", "https", "ws", "wss")}
    assert hosts == {urlsplit(base_url).netloc}


def _titles(links: Locator) -> list[str]:
    """Their texts without the names of the icons, which stand before them on a line of their own."""
    return [text.splitlines()[-1].strip() for text in links.all_inner_texts()]
