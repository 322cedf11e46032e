"""A visitor's place at a page: at most one piece of work of theirs at a time."""

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from kvviz.ui.jobs import Job


class Work(Protocol):
    """What lies on a desk: something with a job behind it."""

    job: Job


T = TypeVar("T", bound=Work)


class Desk(Generic[T]):
    """Holds the visitor's work; replacing it stops the former, leaving ends it and lets go of what it holds."""

    def __init__(self) -> None:
        self.run: T | None = None
        self._changes = threading.Lock()

    def begin(self, make: Callable[[], T]) -> T:
        """Stop what is at work here and put what `make` starts in its place."""
        with self._changes:
            if self.run is not None:
                self.run.job.cancel()
            self.run = make()
            return self.run

    def leave(self) -> None:
        """The visitor is gone: end the work and let go of it."""
        with self._changes:
            if self.run is not None:
                self.run.job.stop.set()
            self.run = None
