"""The real server on a port of its own, and the Chromium of the machine to open it with."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

ROOT = Path(__file__).parents[2]
PROGRAMS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
NO_BROWSER = (
    "The browser tests need Chromium or Chrome and found none. Install it (Debian: apt-get install chromium; "
    "macOS: brew install --cask google-chrome) or name its program: CHROMIUM=/path/to/chromium make test. "
    "To leave them out: make test TESTS=\"-m 'not browser'\""
)
FLAGS = [
    "--no-sandbox",  # Chromium's sandbox cannot start as root or in most containers; it opens our own pages only
    "--disable-gpu",
    "--disable-dev-shm-usage",
    # nothing but the page itself may touch the network
    *("--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
READY_S = 90  # seconds until a server must answer; importing torch on a busy machine takes most of it
IDLE_MS = 120_000  # milliseconds until a page must be done; the first load of a model may convert it
expect.set_options(timeout=30_000)  # a machine that is busy elsewhere takes its time
IDLE = '[data-testid="stApp"][data-test-script-state="notRunning"]'


def chromium() -> str | None:
    """The browser's program: $CHROMIUM, or the first one found on this machine."""
    found = [os.environ.get("CHROMIUM"), *map(shutil.which, PROGRAMS), str(MAC) if MAC.exists() else None]
    return next(filter(None, found), None)


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, object]) -> dict[str, object]:
    """The machine's own Chromium; no test is skipped for the lack of it."""
    program = chromium() or pytest.fail(NO_BROWSER, pytrace=False)
    return {**browser_type_launch_args, "executable_path": program, "args": FLAGS}


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args: dict[str, object]) -> dict[str, object]:
    """A lecturer's screen, with the language of the page chosen by the test and not by the machine."""
    return {**browser_context_args, "viewport": {"width": 1280, "height": 900}, "locale": "en-US"}


@pytest.fixture(scope="session")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server that the tests share; `page.goto("/path")` is relative to it."""
    with _serving(tmp_path_factory.mktemp("server") / "log") as address:
        yield address


@pytest.fixture
def fresh_server(tmp_path: Path) -> Iterator[str]:
    """The address of a server that nobody has opened yet, for what only the first visitor sees."""
    with _serving(tmp_path / "log") as address:
        yield address


@pytest.fixture
def settle() -> Callable[[Page], None]:
    """Wait until the script of a page has run to its end, and fail if it ended in an exception box."""

    def wait(page: Page) -> None:
        expect(page.locator(IDLE)).to_have_count(1, timeout=IDLE_MS)
        expect(page.get_by_test_id("stException")).to_have_count(0)

    return wait


@contextmanager
def _serving(log: Path) -> Iterator[str]:
    port = _free_port()
    options = {"server.port": port, "server.address": "127.0.0.1", "server.headless": "true"}
    command = [sys.executable, "-m", "streamlit", "run", "app.py", *(f"--{key}={options[key]}" for key in options)]
    # Streamlit's own state of a v2 component (its _WriteThrough) cannot be pickled.
    environment = os.environ | {"STREAMLIT_RUNNER_ENFORCE_SERIALIZABLE_SESSION_STATE": "false"}
    quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
    with log.open("w") as file:
        server = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, **quiet)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_until_ready(address, server, log)
        yield address
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_until_ready(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=1) as answer:
                if answer.read() == b"ok":
                    return
        except OSError:
            pass
        time.sleep(0.1)
    pytest.fail(f"The server did not start. Its log:\n{log.read_text()}", pytrace=False)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
