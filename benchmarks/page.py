"""The live Cache growth page in headless Chromium against the bare engine, on the same machine in turns.

python benchmarks/page.py [--rounds 3]
"""

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from playwright.sync_api import Page, sync_playwright

import kvviz
import kvviz.ui  # torch's threads wait as they do in the app
from kvviz.models.loading import LanguageModel

_NEW = 256
_PROMPT = "Once upon a time, in a small village by the sea, there lived a girl who"  # the page's own
_GRID = ".st-key-grid .kvviz"  # in a shadow root, which a locator reads and document.querySelector does not


def main() -> None:
    """Tokens a second by the wall clock, from an early token to the last, in both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="times each is measured; the median counts")
    rounds = parser.parse_args().rounds
    lm = kvviz.load("smollm2-135m")
    with _server() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}/growth?new={_NEW}")
        page.wait_for_selector(".st-key-run button:enabled", timeout=300_000)
        _engine(lm), _page(page)  # not counted: memory, scripts and fonts are fetched once
        pairs = [(_engine(lm), _page(page)) for _ in range(rounds)]
    bare, live = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    each = ", ".join(f"{shown / plain:.2f}" for plain, shown in pairs)
    print(f"live page {live:.1f} tokens/s, bare engine {bare:.1f} tokens/s, ratio {live / bare:.2f} (rounds: {each})")


def _engine(lm: LanguageModel) -> float:
    times = [time.perf_counter() for _ in kvviz.stream(lm, _PROMPT, _NEW)]
    return (len(times) - 1) / (times[-1] - times[0])


def _page(page: Page) -> float:
    page.click(".st-key-run button")
    page.wait_for_selector(".st-key-stop button:enabled")
    while not 30 < (first := _seen(page)) < _NEW:
        time.sleep(0.05)
    begin = time.perf_counter()
    page.wait_for_selector(".st-key-stop button:disabled", timeout=300_000)
    last, end = _seen(page), time.perf_counter()
    return (last - first) / (end - begin)


def _seen(page: Page) -> int:
    grid = page.locator(_GRID)
    return int(grid.get_attribute("data-seen") or 0) if grid.count() else 0


@contextmanager
def _server() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}", "--server.headless=true"]
    root = Path(__file__).parents[1]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        while True:
            try:
                urllib.request.urlopen(f"{address}/_stcore/health", timeout=1)
                break
            except OSError:
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait()


def _chromium() -> str:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if not found:
        sys.exit("The page is measured in Chromium, which was not found. Set CHROMIUM to its program.")
    return found


if __name__ == "__main__":
    main()
