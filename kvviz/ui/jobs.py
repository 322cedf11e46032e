"""Work in a thread of its own, beside the page that looks at it."""

import logging
import threading
from collections.abc import Callable

from kvviz.errors import Refused
from kvviz.ui.turns import Stopped

log = logging.getLogger(__name__)


class Job:
    """One piece of background work: it runs, is stopped, fails or ends; its page polls the fields.

    The work is a function of the job; it checks `stop` (or takes turns, which do) and leaves its results in
    an object of its own, so that what was done before a stop or an error is kept.
    """

    def __init__(self, work: Callable[["Job"], None]) -> None:
        self.stop = threading.Event()
        self.error: Exception | None = None
        # the thread forgets its arguments at the end; a job that kept the work would be a cycle with its owner
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._ended = threading.Event()

    def start(self) -> "Job":
        """Begin; returns the job itself."""
        self._thread.start()
        return self

    @property
    def running(self) -> bool:
        """True from `start` until the work has ended, in whatever way."""
        return self._thread.is_alive() and not self._ended.is_set()

    @property
    def stopped(self) -> bool:
        """True when somebody asked for the end."""
        return self.stop.is_set()

    def cancel(self, wait: float = 5.0) -> None:
        """Ask the work to stop and wait for it at most `wait` seconds."""
        self.stop.set()
        self.join(wait)

    def join(self, wait: float | None = None) -> None:
        """Wait for the work's end."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(wait)

    def _run(self, work: Callable[["Job"], None]) -> None:
        try:
            work(self)
        except Stopped:
            pass
        except Refused as refusal:
            self.error = _bare(refusal)
        except Exception as error:
            log.exception("a run failed")
            self.error = _bare(error)
        finally:
            self._ended.set()


def _bare(error: Exception) -> Exception:
    """The error without its tracebacks and causes: their frames would keep caches and half-loaded models alive."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)
