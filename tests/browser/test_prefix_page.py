"""The Prefix reuse page as a visitor sees it: counts read off the screen are those of the API."""

import re

from playwright.sync_api import Locator, Page, expect

import kvviz
from kvviz.models.loading import LanguageModel
from kvviz.ui.prefix.presets import DESK_DAY, PAIRS
from tests.browser.growth_page import LOADED_MS, RUN_MS


def test_one_word_differs(page: Page, smollm2: LanguageModel) -> None:
    pair = PAIRS["gold"]
    reuse = kvviz.compare_prefix(smollm2, pair.first, pair.second)
    page.goto("/prefix")
    strips = page.locator(".st-key-prefix_strips .kvviz")
    expect(strips).to_have_attribute("data-shared", str(reuse.shared), timeout=LOADED_MS)
    expect(strips).to_have_attribute("data-reused", str(reuse.reused))
    expect(strips.locator(".list .reused")).to_have_count(reuse.reused)
    parted = strips.locator(".list .parted .token").all_text_contents()
    assert parted == [token.label for token in reuse.difference]
    count = len(reuse.second.ids)
    page.locator(".st-key-prefix_pair_run button").first.click()
    expect(page.locator(".st-key-prefix_pair_save_html button")).to_be_visible(timeout=RUN_MS)
    for name, value in (("shared", reuse.shared), ("reused", reuse.reused), ("computed", reuse.computed)):
        assert metric(page, f"prefix_number_{name}").inner_text() == f"{value} of {count}"
    assert float(metric(page, "prefix_number_gap").inner_text()) < 1e-4
    expect(page.locator(".st-key-prefix_map .js-plotly-plot")).to_be_visible()
    expect(page.locator(".st-key-prefix_pair_told")).to_contain_text("Equal tokens, other K and V.")

    page.locator(".st-key-prefix_cheat_run button").first.click()
    damage = page.locator(".st-key-prefix_damage")
    expect(damage).to_contain_text("KL divergence", timeout=RUN_MS)
    wrong = kvviz.cheat_prefix(smollm2, pair.first, pair.second)
    said = float(re.search(r": ([\d.e-]+) nats", damage.inner_text())[1])
    assert abs(said - wrong.kl) < 1e-3 * max(1, wrong.kl)
    for text in (wrong.text, wrong.text_cheated):
        expect(page.get_by_test_id("stCode").filter(has_text=text.strip()).first).to_be_attached()


def test_words_of_the_user_differ_and_the_template_is_shared(page: Page, smollm2: LanguageModel) -> None:
    pair = PAIRS["template"]
    reuse = kvviz.compare_prefix(smollm2, pair.first, pair.second, chat=True)
    assert reuse.shared > 0 and reuse.shared_characters == 0
    page.goto("/prefix")
    strips = page.locator(".st-key-prefix_strips .kvviz")
    expect(strips).to_be_visible(timeout=LOADED_MS)
    page.locator(".st-key-prefix_example").get_by_text("Only the chat template").click()
    expect(strips).to_have_attribute("data-shared", str(reuse.shared), timeout=RUN_MS)
    expect(page.locator(".st-key-prefix_reasons")).to_contain_text("nobody typed")


def test_a_day_at_the_desk(page: Page, smollm2: LanguageModel) -> None:
    page.goto("/prefix?view=many")
    told = page.get_by_text(f"{len(DESK_DAY)} prompts, ")
    expect(told).to_be_visible(timeout=LOADED_MS)
    slider = page.locator(".st-key-prefix_budget").get_by_role("slider")
    percent = int(re.search(r"\d+", slider.get_attribute("aria-valuetext"))[0])
    page.locator(".st-key-prefix_many_run button").first.click()
    expect(page.locator(".st-key-prefix_many_save_html button")).to_be_visible(timeout=2 * RUN_MS)

    ids = [kvviz.encode(smollm2, text).ids for text in DESK_DAY]
    cache = kvviz.PrefixCache(smollm2)
    cache = kvviz.PrefixCache(smollm2, sum(map(len, ids)) * cache.bytes_per_token * percent // 100)
    for prompt in ids:
        cache.serve(prompt)
    facts = cache.statistics
    assert facts.evicted_tokens, "the day is to be larger than the budget"
    assert metric(page, "prefix_many_rate").inner_text() == f"{facts.hit_rate:.1%}"
    assert metric(page, "prefix_many_saved").inner_text() == f"{facts.tokens_saved:,}"
    expect(page.locator(".st-key-prefix_many_held")).to_contain_text(f"{facts.evicted_tokens:,} tokens evicted")
    expect(page.locator(".st-key-prefix_tree .js-plotly-plot")).to_be_visible()
    expect(page.get_by_text("What was evicted, and when")).to_be_visible()
    expect(page.locator(".st-key-prefix_why")).to_contain_text("blocks of 256: hit rate 0")


def metric(page: Page, key: str) -> Locator:
    """The large figure in the container called `key`."""
    return page.locator(f".st-key-{key}").get_by_test_id("stMetricValue")
