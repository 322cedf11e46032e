"""The Memory planner on the screen: the worked example's figures, and an answer that equals the API's."""

import re

from playwright.sync_api import Page, expect

import kvviz
from kvviz.units import size


def test_the_worked_example_is_one_click_away(page: Page, settle) -> None:
    page.goto("/planner?plan_model=qwen2.5-0.5b")
    expect(page.get_by_role("heading", level=1)).to_have_text("Memory planner")
    page.get_by_role("radio", name="Worked example").click()
    settle(page)
    for figure in ("706,560 bytes", "753,664 bytes", "736 KiB", "376,832 bytes", "188,416 bytes"):
        expect(page.get_by_text(figure).first).to_be_visible()
    assert "view=worked" in page.url


def test_the_plan_of_a_preset(page: Page, settle) -> None:
    page.goto("/planner?plan_model=gemma-3-270m&plan_tokens=8192")
    settle(page)
    plan = kvviz.plan("gemma-3-270m", 8192)
    answer = page.get_by_role("heading", name=re.compile("One user at"))
    expect(answer).to_have_text(f"One user at 8,192 tokens needs {size(plan.total_bytes)}.", timeout=60_000)
    metric = page.get_by_test_id("stMetric").filter(has_text="Bytes a token").get_by_test_id("stMetricValue")
    expect(metric).to_have_text(f"{plan.bytes_per_token:,}")
    expect(page.locator(".st-key-plan_layers .main-svg").first).to_be_visible()
