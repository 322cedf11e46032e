"""Long work of a page: in its own thread, with progress, kept by the settings it was made with."""

import time
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Any

import streamlit as st

from kvviz.ui.desk import Desk
from kvviz.ui.jobs import Job
from kvviz.ui.server import shared_turns
from kvviz.ui.shell import Page
from kvviz.ui.text import failure
from kvviz.ui.turns import Stopped, Turns

_KEPT = 12  # results a visitor's view keeps, so that moving a control back is instant

Progress = Callable[[float], None]  # share of the work that is done; raises to end it
Turn = Callable[[], AbstractContextManager]
Work = Callable[[Progress, Turn], Any]


class Task:
    """Work for `wanted`; `result` is there when the job has ended well."""

    def __init__(self, wanted: Hashable, work: Work, turns: Turns) -> None:
        self.wanted, self.share, self.result = wanted, 0.0, None
        self._work, self._turns, self._began = work, turns, time.monotonic()
        self.job = Job(self._run).start()

    @property
    def ahead(self) -> int:
        """How many other runs are served before this one's next step."""
        return self._turns.place(self)

    @property
    def seconds_left(self) -> float | None:
        """About how long it will still take; None while that cannot be known."""
        spent = time.monotonic() - self._began
        return spent * (1 - self.share) / self.share if self.share > 0.02 else None

    def _run(self, job: Job) -> None:
        def note(share: float) -> None:
            self.share = share
            if job.stopped:
                raise Stopped

        self.result = self._work(note, lambda: self._turns.take(self, job.stop))
        self._work = None


class Bench(Desk[Task]):
    """A visitor's place at one view: the task at work or the last one, and the results of those before."""

    def __init__(self) -> None:
        super().__init__()
        self._results: dict[Hashable, Task] = {}

    def start(self, wanted: Hashable, work: Work) -> None:
        """Begin, in place of what this visitor had at work here."""
        self.begin(lambda: Task(wanted, work, shared_turns()))

    def find(self, wanted: Hashable) -> Task | None:
        """The finished task for exactly these settings if it is still kept, else the last one."""
        if self.run is not None and self.run.result is not None:
            self._results.pop(self.run.wanted, None)
            self._results[self.run.wanted] = self.run
            while len(self._results) > _KEPT:
                del self._results[next(iter(self._results))]
        if self.run is not None and self.run.job.running:
            return self.run
        return self._results.get(wanted, self.run)

    def leave(self) -> None:
        """The visitor is gone: let go of the results, too."""
        super().leave()
        self._results.clear()


@st.cache_resource(scope="session", on_release=Bench.leave, show_spinner=False)
def bench(view: str) -> Bench:
    """This visitor's place at the view called `view`; cleared away when the tab closes."""
    return Bench()


def run_or_stop(page: Page, view: str, wanted: Hashable | None, work: Work | None, label: str) -> Task | None:
    """The buttons, and the task to show: `wanted` and its `work` are None while the inputs allow no run."""
    t, place = page.t, bench(view)
    working = place.run is not None and place.run.job.running
    left, middle, _ = st.columns([1, 1, 4], vertical_alignment="center")
    # with refused inputs too: the click that takes a correction along must not find a disabled button
    go = left.button(
        label,
        key=f"{view}_run",
        type="primary",
        icon=":material/play_arrow:",
        width="stretch",
        disabled=page.resident is None,
    )
    if go and wanted is not None and work is not None:
        place.start(wanted, work)
        st.rerun()
    if middle.button(t("Stop"), key=f"{view}_stop", icon=":material/stop:", width="stretch", disabled=not working):
        place.run.job.cancel()
        st.rerun()
    return place.find(wanted)


def result_of(page: Page, task: Task, wanted: Hashable | None) -> Any:
    """Progress while it works, then its result; None with the reason on the screen when there is none."""
    t = page.t
    if task.job.running:
        st.fragment(_watch, run_every=0.3)(page, task)
        return None
    if task.job.error is not None:
        st.error(failure(task.job.error, t), icon=":material/error:")
    elif task.result is None:
        st.info(t("Stopped; nothing is kept of what was not finished."))
    if task.result is not None and wanted != task.wanted:
        told = t("The settings above have changed since; what is shown belongs to the earlier ones.")
        st.warning(told, icon=":material/history:")
    return task.result


def _watch(page: Page, task: Task) -> None:
    if not task.job.running:
        st.rerun()
    t, left = page.t, task.seconds_left
    told = t("{percent} % done").format(percent=int(100 * task.share))
    if task.ahead and not task.share:
        told = t("Waiting for a turn: {count} ahead of you").format(count=task.ahead)
    elif left is not None:
        told += " · " + t("about {seconds} s left").format(seconds=round(left))
    st.progress(min(1.0, task.share), told)
