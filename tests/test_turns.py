"""Turns at one device: one at a time, in the order they came, and nobody's end holds up the others."""

import threading
import time

import pytest

from kvviz.ui.turns import Stopped, Turns
from tests.waiting import background, until


class Line:
    """A device held by the test, with runs waiting behind it one after the other."""

    def __init__(self, *names: str) -> None:
        self.turns = Turns()
        self.free = threading.Event()
        self.stops = {name: threading.Event() for name in names}
        self.served: list[str] = []
        self.stopped: list[str] = []
        self.threads = [background(self._hold)]
        until(lambda: self.served == ["holder"])
        for ahead, name in enumerate(names, start=1):
            self.threads.append(background(lambda name=name: self._wait(name)))
            until(lambda name=name, ahead=ahead: self.turns.place(name) == ahead)

    def _hold(self) -> None:
        with self.turns.take("holder", threading.Event()):
            self.served.append("holder")
            self.free.wait(10)

    def _wait(self, name: str) -> None:
        try:
            with self.turns.take(name, self.stops[name]):
                self.served.append(name)
        except Stopped:
            self.stopped.append(name)

    def finish(self) -> None:
        self.free.set()
        for thread in self.threads:
            thread.join(10)


def test_served_in_the_order_they_came() -> None:
    line = Line("a", "b", "c", "d")
    line.finish()
    assert line.served == ["holder", "a", "b", "c", "d"]


def test_a_place_is_the_number_of_those_ahead() -> None:
    line = Line("a", "b")
    assert [line.turns.place(name) for name in ("holder", "a", "b", "never came")] == [0, 1, 2, 0]
    line.finish()
    assert [line.turns.place(name) for name in ("holder", "a", "b")] == [0, 0, 0]


def test_a_stop_while_waiting_ends_the_wait_and_leaves_the_line_as_it_was() -> None:
    line = Line("a", "b", "c")
    begin = time.monotonic()
    line.stops["b"].set()
    until(lambda: line.stopped == ["b"])
    assert time.monotonic() - begin < 0.5
    assert line.served == ["holder"], "a stop of one must not let another in"
    assert [line.turns.place(name) for name in ("a", "b", "c")] == [1, 0, 2]
    line.finish()
    assert line.served == ["holder", "a", "c"]


def test_a_stop_before_the_turn_is_not_served_even_when_nobody_waits() -> None:
    turns, stop = Turns(), threading.Event()
    stop.set()
    with pytest.raises(Stopped), turns.take("late", stop):
        pytest.fail("served")
    with turns.take("next", threading.Event()):
        assert turns.place("next") == 0


def test_an_exception_inside_a_turn_lets_the_next_one_in() -> None:
    turns = Turns()
    with pytest.raises(ZeroDivisionError), turns.take("broken", threading.Event()):
        raise ZeroDivisionError
    served = threading.Event()

    def next_one() -> None:
        with turns.take("next", threading.Event()):
            served.set()

    background(next_one)
    assert served.wait(5)


def test_runs_that_want_many_turns_get_one_each_in_rounds() -> None:
    """A turn lasts until all others are in line again, as a forward does; then nobody is a round behind."""
    turns, served, rounds, runs = Turns(), [], 20, range(5)
    done = dict.fromkeys(runs, False)
    inside, most = 0, 0

    def work(run: int) -> None:
        nonlocal inside, most
        for _ in range(rounds):
            with turns.take(run, threading.Event()):
                inside += 1
                most = max(most, inside)
                served.append(run)
                until(lambda: all(done[other] or turns.place(other) for other in runs if other != run))
                inside -= 1
        done[run] = True

    threads = [background(lambda run=run: work(run)) for run in runs]
    for thread in threads:
        thread.join(20)
    assert most == 1, "two runs were at the device at once"
    assert len(served) == rounds * len(runs)
    first = served[: len(runs)]
    assert sorted(first) == list(runs)
    assert served == first * rounds


def test_hurried_runs_never_overlap_and_none_starves() -> None:
    turns, rounds, taken = Turns(), 200, dict.fromkeys(range(4), 0)
    inside = threading.Lock()

    def work(run: int) -> None:
        for _ in range(rounds):
            with turns.take(run, threading.Event()):
                assert inside.acquire(blocking=False), "two runs were at the device at once"
                taken[run] += 1
                inside.release()

    for thread in [background(lambda run=run: work(run)) for run in taken]:
        thread.join(20)
    assert taken == dict.fromkeys(range(4), rounds)
