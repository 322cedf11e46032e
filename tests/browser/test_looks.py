"""Light and dark, two widths, two languages: nothing spills over, nothing breaks, and a picture of each is kept."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from kvviz.locale import translator
from tests.browser.growth_page import LOADED_MS, RUN_MS

WIDTHS = (1280, 1920)
SPILL = "element => element.scrollWidth - element.clientWidth"


@pytest.mark.parametrize("language", ["en", "zh-TW"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_fit(new_context, output_path: str, settle, theme: str, language: str) -> None:
    page, t = new_context(color_scheme=theme).new_page(), translator(language)
    folder = Path(output_path)
    page.goto(f"/?lang={language}")
    expect(page.locator(".st-key-home_grid .kvviz")).to_have_attribute("data-live", "false", timeout=LOADED_MS)
    _fits(page, settle, folder / "home", theme)
    page.goto(f"/growth?lang={language}&new=24&compare=true")
    run = page.locator(".st-key-run button")
    expect(run).to_be_enabled(timeout=LOADED_MS)
    _fits(page, settle, folder / "asked", theme)
    run.click()
    ended = page.get_by_text(t("All {count} new tokens are written.").format(count=24))
    expect(ended).to_be_visible(timeout=RUN_MS)
    expect(page.locator(".st-key-with_and_without .js-plotly-plot")).to_be_visible(timeout=RUN_MS)
    _fits(page, settle, folder / "growth", theme)


def _fits(page: Page, settle, picture: Path, theme: str) -> None:
    settle(page)
    expect(page.locator(".kvviz.dark")).to_have_count(page.locator(".kvviz").count() if theme == "dark" else 0)
    for width in WIDTHS:
        # as tall as the whole page, which scrolls inside its own frame
        page.set_viewport_size({"width": width, "height": 900})
        height = page.get_by_test_id("stMain").evaluate("element => element.scrollHeight")
        page.set_viewport_size({"width": width, "height": height})
        main = page.get_by_test_id("stMain")
        assert main.evaluate(SPILL) <= 0, f"{picture.name} spills over at {width} pixels"
        page.screenshot(path=f"{picture}-{theme}-{width}.png")
