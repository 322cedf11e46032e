"""Where pruning hurts: right answers and held shares on the screen are those of the API."""

from playwright.sync_api import Page, expect

import kvviz
from kvviz.analysis.facts import by_policy
from kvviz.models.loading import LanguageModel
from kvviz.policies import Random, Window
from tests.browser.growth_page import LOADED_MS, RUN_MS


def test_right_answers_are_those_of_the_api(page: Page, smollm2: LanguageModel) -> None:
    page.goto("/pruning?view=facts&facts_length=256&facts_rounds=2&facts_arms=window&facts_percent=15")
    run = page.locator(".st-key-facts_run button").first
    expect(run).to_be_enabled(timeout=LOADED_MS)
    run.click()
    expect(page.locator(".st-key-facts_html button")).to_be_visible(timeout=RUN_MS)

    budget = round(0.15 * 256)
    answers = kvviz.probe_facts(smollm2, [Window(budget=budget), Random(budget=budget)], tokens=256, rounds=2)
    expected = by_policy(answers)
    rows = page.get_by_test_id("stTable").first.locator("tbody tr")
    shown = [[cell.inner_text() for cell in row.locator("td").all()] for row in rows.all()]
    assert [row[0] for row in shown] == ["full cache", "window", "random"]
    assert [row[1] for row in shown] == [f"{row.right} / 10" for row in expected.itertuples()]
    assert [row[4] for row in shown] == [f"{100 * value:.0f} %" for value in expected["held_share"]]
    told = page.locator(".st-key-facts_verdict").inner_text()
    assert f"the model gives {expected['right'][0]} of 10 answers right" in told
    expect(page.locator(".st-key-facts_map .hm")).to_have_count(2)
