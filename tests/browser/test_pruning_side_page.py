"""Policies side by side: the perplexities and texts on the screen are those of the API on the same text."""

import re

import numpy as np
from playwright.sync_api import Page, expect

import kvviz
from kvviz.models.loading import LanguageModel
from kvviz.policies import Random, SinksWindow, Window
from kvviz.ui.pruning.example import PROSE
from tests.browser.growth_page import LOADED_MS, RUN_MS

TEXT = PROSE[:500]
NEW = 8


def test_perplexities_and_texts_are_those_of_the_api(page: Page, smollm2: LanguageModel) -> None:
    page.goto(f"/pruning?view=side&side_arms=window,sinks_window&side_new={NEW}")
    run = page.locator(".st-key-side_run button").first
    expect(run).to_be_enabled(timeout=LOADED_MS)
    page.locator(".st-key-side_source").get_by_text("Typed or pasted").click()
    page.get_by_label("Text", exact=True).fill(TEXT)
    run.click()
    expect(page.locator(".st-key-side_html button")).to_be_visible(timeout=RUN_MS)

    ids = kvviz.encode(smollm2, TEXT).ids
    budget = round(0.2 * len(ids))
    policies = [Window(budget=budget), SinksWindow(budget=budget), Random(budget=budget)]
    expected = kvviz.compare_policies(smollm2, ids, policies).perplexities()
    rows = page.get_by_test_id("stTable").first.locator("tbody tr")
    shown = [[cell.inner_text() for cell in row.locator("td").all()] for row in rows.all()]
    assert [row[0] for row in shown] == ["full cache", "window", "sinks + window, cache-relative", "random"]
    for column, name in ((1, "perplexity"), (3, "after"), (4, "full_after")):
        read = [float(row[column].replace(",", "")) for row in shown if row[column] != "–"]
        np.testing.assert_allclose(read, expected[name].dropna(), rtol=2e-3, atol=0.01)
    assert [int(row[6]) for row in shown] == expected["stored"].tolist()

    cards = page.locator(".st-key-side_texts .card")
    expect(cards).to_have_count(4)
    for card, policy in zip(cards.all(), [None, *policies], strict=True):
        steps = list(kvviz.stream(smollm2, ids, NEW, policy=policy))
        assert card.locator(".text").text_content() == "".join(step.text for step in steps)
    assert re.search(r"differs from new token \d+ on", cards.nth(1).inner_text())
    expect(page.locator(".st-key-side_loss .js-line").first).to_be_visible()
    expect(page.locator(".st-key-side_agreement .hm")).to_have_count(1)


def test_the_policies_of_a_link_are_chosen_on_a_server_nobody_has_opened(page: Page, fresh_server: str) -> None:
    page.goto(f"{fresh_server}/pruning?view=side&side_arms=window,tova&side_unit=tokens")
    expect(page.locator(".st-key-side_run button").first).to_be_enabled(timeout=LOADED_MS)
    pressed = page.locator(".st-key-side_arms button[aria-pressed=true]")
    expect(pressed).to_have_count(2, timeout=LOADED_MS)
    assert pressed.all_inner_texts() == ["window", "TOVA"]
    expect(page.locator(".st-key-side_tokens input")).to_be_visible()
