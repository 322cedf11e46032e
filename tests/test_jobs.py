"""Background work: how it ends, what is kept of it, and that nothing of it stays in memory."""

import logging
import threading
import weakref

import pytest

from kvviz.errors import Refused
from kvviz.ui.jobs import Job
from kvviz.ui.turns import Turns


class Results(list):
    """A list that can be watched."""


def counting(results: list[int], begun: threading.Event):
    """Work that goes on until it is asked to stop, one number a step."""

    def work(job: Job) -> None:
        while not job.stop.is_set():
            results.append(len(results))
            begun.set()
            job.stop.wait(0.001)

    return work


def test_it_runs_beside_its_starter_and_ends() -> None:
    go, results = threading.Event(), []

    def work(job: Job) -> None:
        go.wait(10)
        results.append(job)

    job = Job(work)
    assert not job.running
    assert job.start() is job
    assert job.running and not results
    go.set()
    job.join(10)
    assert not job.running and not job.stopped and job.error is None
    assert results == [job]


def test_cancel_waits_for_the_end_and_keeps_what_was_done() -> None:
    results, begun = [], threading.Event()
    job = Job(counting(results, begun)).start()
    assert begun.wait(10)
    job.cancel()
    assert not job.running and job.stopped and job.error is None
    assert results and results == list(range(len(results)))
    kept = len(results)
    job.cancel()  # once more does nothing
    assert len(results) == kept


def test_cancel_gives_up_waiting_for_work_that_does_not_listen() -> None:
    release = threading.Event()
    job = Job(lambda job: release.wait(10)).start()
    job.cancel(wait=0.01)
    assert job.running and job.stopped
    release.set()
    job.join(10)
    assert not job.running


def test_a_stop_while_it_waits_for_a_turn_is_no_error() -> None:
    turns = Turns()

    def work(job: Job) -> None:
        with turns.take("me", job.stop):
            pytest.fail("served")

    with turns.take("another", threading.Event()):
        job = Job(work).start()
        job.cancel()
        assert not job.running and job.stopped and job.error is None


def test_a_refusal_is_kept_as_it_is_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    refusal = Refused("No room for {name}.", name="this")

    def work(job: Job) -> None:
        raise refusal

    job = Job(work).start()
    job.join(10)
    assert job.error is refusal and not job.running and not job.stopped
    assert not caplog.records


def test_a_crash_is_kept_and_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    done = []

    def work(job: Job) -> None:
        done.append(1)
        raise ZeroDivisionError("boom")

    with caplog.at_level(logging.ERROR):
        job = Job(work).start()
        job.join(10)
    assert isinstance(job.error, ZeroDivisionError) and not job.running and not job.stopped
    assert done == [1]
    assert "boom" in caplog.text and "in work" in caplog.text


def owner(fails: bool) -> Results:
    """An object that owns the job which works on it, as a run of a page does."""
    results = Results()

    def work(job: Job) -> None:
        held = results  # in a frame of the traceback
        try:
            held.append({}["missing"] if fails else 1)
        except KeyError as error:
            raise Refused("It failed.") from error

    results.job = Job(work).start()
    results.job.join(10)
    return results


@pytest.mark.parametrize("fails", [False, True])
def test_an_ended_job_holds_nothing_of_its_work(fails: bool) -> None:
    """Neither a cycle nor a traceback may keep tensors alive until somebody collects garbage."""
    results = owner(fails)
    assert isinstance(results.job.error, Refused) is fails
    watch = weakref.ref(results)
    del results
    assert watch() is None
