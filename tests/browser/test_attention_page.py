"""The Attention page's main job: what is read off the screen is what the API measures on the same text."""

import re

import numpy as np
from playwright.sync_api import Page, expect

from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import encode
from kvviz.summary import attention
from kvviz.ui.growth.inputs import LONG_PAGE
from tests.browser.growth_page import LOADED_MS, RUN_MS

TOKEN, NEXT = 30, 33  # the ones that are clicked on
LINE = re.compile(r"([01]\.\d{4})   (\d+)   “(.*)”")


def test_sinks_and_single_tokens_are_those_of_the_api(page: Page, smollm2: LanguageModel) -> None:
    page.goto("/attention")
    measure = page.locator(".st-key-measure button").first
    expect(measure).to_be_enabled(timeout=LOADED_MS)
    page.locator(".st-key-attention_preset").get_by_text("A long page").click()
    expect(page.get_by_label("Text", exact=True)).to_have_value(LONG_PAGE)
    measure.click()
    expect(page.locator(".st-key-save_html button")).to_be_visible(timeout=RUN_MS)

    summary = attention(smollm2, encode(smollm2, LONG_PAGE).ids)
    sink = summary.sinks(epsilon=0.3).iloc[0]
    told = page.locator(".st-key-sink_rate").inner_text()
    rate = float(re.search(r"([\d.]+)%", told)[1])
    assert abs(rate - 100 * sink["rate"]) < 0.4, told  # one head of 270 may be at the limit
    assert str(sink["position"]) in told and f"({summary.labels[sink['position']]})" in told

    layer = int(page.locator(".st-key-layer").get_by_role("slider").get_attribute("aria-valuetext") or -1)
    rows = summary.queries(layer, [TOKEN, NEXT])[0]
    strip = page.locator(".st-key-attention_strip")
    expect(strip.locator(".list .token")).to_have_count(len(summary.ids))
    for row, token in zip(rows, (TOKEN, NEXT), strict=True):
        strip.locator(".list .token").nth(token).click()
        expect(page.locator(".st-key-strip_top")).to_contain_text(f"token {token} looks at", timeout=RUN_MS)
        expect(page.locator(".st-key-strip_position input")).to_have_value(str(token))
        _shows(page, row, summary.labels)
    # the number moves the mark, and the token clicked on before can be clicked on again
    page.locator(".st-key-strip_position input").fill(str(TOKEN))
    page.keyboard.press("Enter")
    expect(strip.locator(".kvviz")).to_have_attribute("data-selected", str(TOKEN), timeout=RUN_MS)
    strip.locator(".list .token").nth(NEXT).click()
    expect(page.locator(".st-key-strip_position input")).to_have_value(str(NEXT), timeout=RUN_MS)


def _shows(page: Page, row: np.ndarray, labels: list[str]) -> None:
    """The five lines under the strip are the five largest of `row`."""
    lines = LINE.findall(page.locator(".st-key-strip_top").inner_text())
    best = np.argsort(-np.nan_to_num(row), kind="stable")[:5]
    assert [int(position) for _, position, _ in lines] == best.tolist()
    assert [token for _, _, token in lines] == [labels[position] for position in best]
    np.testing.assert_allclose([float(weight) for weight, _, _ in lines], row[best], atol=2e-4)


AWKWARD = "the the 1E1 2024-1-5 <s> <b> &lt; 漢 👍🏽 של"


def test_every_id_has_its_cell_and_says_its_attention(page: Page, smollm2: LanguageModel) -> None:
    page.goto("/attention")
    measure = page.locator(".st-key-measure button").first
    expect(measure).to_be_enabled(timeout=LOADED_MS)
    page.get_by_label("Text", exact=True).fill(AWKWARD)
    measure.click()
    chart = page.locator(".st-key-attention_map")
    area = chart.locator(".nsewdrag").first
    expect(area).to_be_visible(timeout=RUN_MS)
    expect(page.locator(".st-key-save_html button")).to_be_visible(timeout=RUN_MS)

    summary = attention(smollm2, encode(smollm2, AWKWARD).ids)
    count = len(summary.ids)
    written = [f"{position} {label}" for position, label in enumerate(summary.labels)]
    assert count <= 40, "the axis writes every token of a short text"
    assert chart.locator(".xtick text").all_text_contents() == written

    layer = int(page.locator(".st-key-layer").get_by_role("slider").get_attribute("aria-valuetext"))
    query, key = count - 3, 2
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    cell = box["width"] / count, box["height"] / count
    page.mouse.move(box["x"] + (key + 0.4) * cell[0], box["y"] + (query + 0.4) * cell[1])
    page.mouse.move(box["x"] + (key + 0.5) * cell[0], box["y"] + (query + 0.5) * cell[1])
    told = chart.locator(".hoverlayer .hovertext")
    expect(told).to_contain_text("attention", timeout=10_000)
    row = summary.queries(layer, [query])[0, 0]
    said = told.text_content()  # SVG has no inner text
    assert written[query] in said and written[key] in said
    assert abs(float(re.search(r"attention ([\d.]+),", said)[1]) - row[key]) < 2e-5, said
    assert int(re.search(r"rank (\d+)", said)[1]) == 1 + int((row[: query + 1] > row[key]).sum()), said
