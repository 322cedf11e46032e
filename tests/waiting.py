"""Waiting for another thread in tests: until something holds, never for a fixed time."""

import threading
import time
from collections.abc import Callable


def until(holds: Callable[[], object], seconds: float = 10) -> None:
    """Return as soon as `holds()` is true; fail after `seconds`."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.001)


def background(work: Callable[[], object]) -> threading.Thread:
    """A started thread that ends with the test process, whatever happens."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
