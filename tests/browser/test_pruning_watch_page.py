"""One policy, watched, on the real model: what is read off the screen is what the API says of the same run."""

import csv
import re
from pathlib import Path

import numpy as np
from playwright.sync_api import Locator, Page, expect

from kvviz.analysis.evictions import from_steps
from kvviz.analysis.reasons import reasons
from kvviz.engine.stream import stream
from kvviz.geometry.layers import layer_shapes
from kvviz.models.loading import LanguageModel
from kvviz.policies import H2O
from kvviz.ui.growth.inputs import PRESETS
from tests.browser.growth_page import LOADED_MS, RUN_MS, number

NEW, BUDGET = 12, 10
TOKEN_BYTES = 46_080  # SmolLM2 in float32
LINES = re.compile(
    r"when token (\d+) “.*” had been read\.\s+Its score of ([\d.e-]+) was number (\d+) from below among the (\d+) that "
    r"could go"
)


def test_a_run_under_h2o_is_that_of_the_api(page: Page, smollm2: LanguageModel) -> None:
    page.goto(f"/pruning?view=watch&watch_unit=tokens&watch_tokens={BUDGET}&watch_new={NEW}")
    run = page.locator(".st-key-watch_run button").first
    expect(run).to_be_enabled(timeout=LOADED_MS)
    expect(page.get_by_text(f"at most {BUDGET} stay per layer and KV head")).to_be_visible()
    expect(page.locator(".st-key-watch_policy input")).to_have_value("H2O")
    run.click()
    expect(page.locator(".st-key-watch_html button")).to_be_visible(timeout=RUN_MS)

    policy = H2O(budget=BUDGET)
    steps = list(stream(smollm2, PRESETS["story"][1], NEW, policy=policy))
    found, seen = from_steps(policy, steps, layer_shapes(smollm2.config)), steps[-1].seen
    assert number(_metric(page, "seen")) == seen
    below = page.locator(".st-key-watch_number_bytes").get_by_test_id("stCaptionContainer")
    assert number(below) == steps[-1].cache_bytes == BUDGET * TOKEN_BYTES
    share = f"{100 * BUDGET / seen:.0f} % of it is held"
    expect(page.locator(".st-key-watch_number_full").get_by_text(share)).to_be_visible()

    written = page.locator(".st-key-watch_strip .list .token")
    expect(written).to_have_count(seen + 1)
    grid = page.locator(".st-key-watch_grid .kvviz")
    somewhere = (found.gone > seen - 1).any(axis=1).sum(axis=1)
    stored = [int(count) for count in grid.get_attribute("data-stored", timeout=RUN_MS).split(",")]
    assert np.abs(np.array(stored) - somewhere).max() <= 1, "what two threads add up may differ in the last bits"

    layer = found.layers[len(found.layers) // 2]  # where the page begins
    lost = reasons(found, layer, 0)
    chosen = lost.iloc[len(lost) // 2]
    written.nth(int(chosen["position"])).click()
    expect(page.locator(".st-key-watch_token input")).to_have_value(str(int(chosen["position"])), timeout=RUN_MS)
    why = page.locator(".st-key-watch_why")
    expect(why).to_contain_text(f"Token {int(chosen['position'])} “", timeout=RUN_MS)
    after, score, rank, candidates = LINES.search(why.inner_text()).groups()
    assert [int(after), int(rank), int(candidates)] == chosen[["evicted_after", "rank", "candidates"]].astype(
        int
    ).tolist()
    assert abs(float(score) - chosen["score"]) <= 2e-3 * chosen["score"]

    with page.expect_download() as download:
        page.locator(".st-key-watch_csv_evictions button").click()
    rows = list(csv.DictReader(Path(download.value.path()).read_text(encoding="utf-8").splitlines()))
    assert len(rows) == found.count == (seen - BUDGET) * found.gone.shape[0] * found.gone.shape[1]
    expect(page.locator(".st-key-watch_timeline .nsewdrag").first).to_be_visible(timeout=RUN_MS)


def _metric(page: Page, name: str) -> Locator:
    return page.locator(f".st-key-watch_number_{name}").get_by_test_id("stMetricValue")
