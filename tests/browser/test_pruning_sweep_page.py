"""The budget sweep: the perplexities on the screen are those of the API, and Stop keeps what is finished."""

import numpy as np
from playwright.sync_api import Page, expect

import kvviz
from kvviz.models.loading import LanguageModel
from kvviz.policies import Random, Window
from kvviz.ui.pruning.example import PROSE
from tests.browser.growth_page import LOADED_MS, RUN_MS

TEXT = PROSE[:500]


def test_perplexities_are_those_of_the_api(page: Page, smollm2: LanguageModel) -> None:
    page.goto("/pruning?view=sweep&sweep_arms=window")
    run = page.locator(".st-key-sweep_run button").first
    expect(run).to_be_enabled(timeout=LOADED_MS)
    page.locator(".st-key-sweep_source").get_by_text("Typed or pasted").click()
    page.get_by_label("Text", exact=True).fill(TEXT)
    run.click()
    expect(page.locator(".st-key-sweep_html button")).to_be_visible(timeout=RUN_MS)

    frame = kvviz.sweep(smollm2, TEXT, [Window(budget=0.2), Random(budget=0.2)])
    rows = page.get_by_test_id("stTable").first.locator("tbody tr")
    shown = {row[0]: row[1:] for row in ([cell.inner_text() for cell in tr.locator("td").all()] for tr in rows.all())}
    for name, kind in (("window", "Window"), ("random", "Random")):
        expected = frame[frame["policy"].str.startswith(kind)]["perplexity"].to_numpy()
        read = [float(cell.replace(",", "")) for cell in shown[name] if cell != "–"]
        np.testing.assert_allclose(read, expected, rtol=5e-3)
    assert abs(float(shown["full cache"][-1]) - frame["perplexity"][0]) < 0.05
    assert page.locator(".st-key-sweep_lines .scatterlayer .trace").count() == 3
    expect(page.locator(".st-key-sweep_lines")).to_contain_text("the papers' “5x”")
