"""The StreamingLLM picture: the perplexities on the screen are those of the API on the same part of the book."""

import re

import numpy as np
from playwright.sync_api import Page, expect

import kvviz
from kvviz.models.loading import LanguageModel
from kvviz.policies import SinksWindow, Window
from tests.browser.growth_page import LOADED_MS, RUN_MS

BUDGET = 48


def test_perplexities_by_sinks_are_those_of_the_api(page: Page, smollm2: LanguageModel) -> None:
    page.goto(f"/pruning?view=streaming&streaming_length=512&streaming_budget={BUDGET}&streaming_sinks=4")
    run = page.locator(".st-key-streaming_run button").first
    expect(run).to_be_enabled(timeout=LOADED_MS)
    run.click()
    expect(page.locator(".st-key-streaming_html button")).to_be_visible(timeout=RUN_MS)

    ids = kvviz.encode(smollm2, kvviz.texts.alice(), past_context=True).ids[:512]
    policies = [Window(budget=BUDGET), SinksWindow(budget=BUDGET)]
    expected = kvviz.compare_policies(smollm2, ids, policies).perplexities()
    rows = page.get_by_test_id("stTable").first.locator("tbody tr")
    shown = {row.locator("td").nth(0).inner_text(): row.locator("td").nth(1).inner_text() for row in rows.all()}
    read = [float(shown[sinks].replace(",", "")) for sinks in ("0", "4")]
    np.testing.assert_allclose(read, expected["after"][1:], rtol=2e-3)
    assert read[0] > 1.5 * read[1] > 1.5 * expected["full_after"][2] * 0.95, "four sinks mend most of the window"
    assert shown["1"] == shown["2"] == shown["8"] == "–"
    told = page.locator(".st-key-streaming_verdict").inner_text()
    full, window = (float(re.search(rf"([\d.,]+) {where}", told)[1]) for where in ("with the full", "in the window"))
    np.testing.assert_allclose([full, window], [expected["full_after"][1], expected["after"][1]], rtol=2e-3)
    assert "ends before the model's trained length of 8,192" in told
    names = page.locator(".st-key-streaming_loss .legendtext").all_text_contents()
    assert names == ["full cache", f"window of {BUDGET}", f"4 sinks + window of {BUDGET - 4}"]
