"""Two visitors at once: both stream, and nobody's Stop or closed tab touches the other's run."""

import time
from urllib.parse import urlsplit

import psutil
from playwright.sync_api import expect

from tests.browser.growth_page import RUN_MS, GrowthPage

LONG = "new=1024"  # far more than these tests let it write
IDLE_CORES = 0.1  # a server that decodes takes all it can get, on a busy machine a part of one core
PATIENCE_S = 12  # far less than the forsaken run would take to its end


def test_stop_of_one_leaves_the_other_to_its_end(new_context) -> None:
    first, second = (GrowthPage(new_context().new_page()).open(query) for query in (LONG, "new=48"))
    first.start()
    second.start()
    for visitor in (first, second, first, second):
        _goes_on(visitor)
    first.stop.click()
    expect(first.stop).to_be_disabled(timeout=RUN_MS)
    expect(first.page.get_by_text("Stopped after")).to_be_visible(timeout=RUN_MS)
    second.wait_end(48)
    expect(second.value("seen")).to_have_text(str(second.prompt_tokens() + 48 - 1))
    assert len(second.tokens("generated")) == 48
    assert first.seen() < 1024


def test_a_closed_tab_ends_its_run_and_no_other(new_context, base_url: str) -> None:
    leaving, staying = (GrowthPage(new_context().new_page()).open(LONG) for _ in range(2))
    leaving.start()
    staying.start()
    for visitor in (leaving, staying):
        _goes_on(visitor)
    server = _server_of(base_url)
    assert _busy_cores(server) > IDLE_CORES, "the measure must see a decoding server"
    leaving.page.close()
    _goes_on(staying)
    _goes_on(staying)
    expect(staying.stop).to_be_enabled()
    staying.stop.click()
    expect(staying.stop).to_be_disabled(timeout=RUN_MS)
    staying.page.close()
    end = time.monotonic() + PATIENCE_S
    while _busy_cores(server) > IDLE_CORES:
        assert time.monotonic() < end, "the run of the closed tab still keeps the server busy"


def _goes_on(visitor: GrowthPage) -> None:
    now = visitor.seen_in_grid()
    assert visitor.seen_in_grid(after=now) > now


def _server_of(address: str) -> psutil.Process:
    port = f"--server.port={urlsplit(address).port}"
    return next(child for child in psutil.Process().children() if port in child.cmdline())


def _busy_cores(server: psutil.Process) -> float:
    """Cores' worth of time the server used in the second that this call takes."""
    return server.cpu_percent(interval=1.0) / 100
