"""A visitor of a page whose views keep their work on benches, run by Streamlit's own test runner on tiny models."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from streamlit.testing.v1 import AppTest

from kvviz.ui import task
from kvviz.ui.task import Bench
from tests.test_pages import Visit


class Worker:
    """Opens one view of a page, presses its buttons and waits for its work."""

    def __init__(self, visit: Visit, page: str, view: str) -> None:
        self.visit, self.page, self.view = visit, page, view
        self.benches: dict[str, Bench] = {}

    @property
    def at(self) -> AppTest:
        return self.visit.at

    @property
    def result(self) -> object:
        return self.benches[self.view].run.result

    def bench(self, view: str) -> Bench:
        return self.benches.setdefault(view, Bench())

    def open(self, **query: str) -> AppTest:
        return self.visit.open(self.page, view=self.view, **query)

    def type(self, text: str) -> AppTest:
        """A text instead of the example."""
        self.at.segmented_control(key=f"{self.view}_source").set_value("typed").run()
        self.at.text_area(key=f"{self.view}_text").set_value(text)
        return self.at.run()

    def press(self, button: str = "run") -> AppTest:
        return self.at.button(key=f"{self.view}_{button}").click().run()

    def settle(self) -> AppTest:
        for bench in self.benches.values():
            if bench.run is not None:
                bench.run.job.join(60)
                assert not bench.run.job.running
        return self.at.run()


@contextmanager
def at_work(visit: Visit, monkeypatch: pytest.MonkeyPatch, page: str, view: str) -> Iterator[Worker]:
    """A worker whose benches and turns are the test's own."""
    worker = Worker(visit, page, view)
    monkeypatch.setattr(task, "bench", worker.bench)
    monkeypatch.setattr(task, "shared_turns", lambda: visit.turns)
    yield worker
    visit.turns.go_on.set()
    for bench in worker.benches.values():
        if bench.run is not None:
            bench.run.job.cancel()
