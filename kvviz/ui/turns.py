"""Fair use of one device by many runs: first come, first served, one forward at a time."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(Exception):
    """The run was asked to stop, while it waited or before its next turn."""


class Turns:
    """A lock whose waiters are served in the order they came.

    A run takes a turn for every forward and queues again at the end for the next one, so that runs advance
    token by token together and nobody waits for another's whole text.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._line: deque[object] = deque()  # the first is at work

    @contextmanager
    def take(self, run: object, stop: threading.Event) -> Iterator[None]:
        """One turn for `run`; raises Stopped as soon as `stop` is set while it waits."""
        with self._changed:
            self._line.append(run)
            try:
                while self._line[0] is not run and not stop.is_set():
                    self._changed.wait(timeout=0.05)  # `stop` is set without notice
            except BaseException:
                self._leave(run)
                raise
            if stop.is_set():
                self._leave(run)
                raise Stopped
        try:
            yield
        finally:
            with self._changed:
                self._leave(run)

    def place(self, run: object) -> int:
        """How many are ahead of `run` in the line; 0 when it is at work or not waiting."""
        with self._changed:
            return self._line.index(run) if run in self._line else 0

    def _leave(self, run: object) -> None:
        self._line.remove(run)
        self._changed.notify_all()
