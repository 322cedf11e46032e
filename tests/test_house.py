"""The models in memory: loaded once, one after the other, the least used one let go, failures kept until retried."""

import threading
import weakref
from types import SimpleNamespace

import pytest

from kvviz.errors import Refused
from kvviz.ui.house import ModelHouse, ModelKey
from kvviz.ui.turns import Turns
from tests.waiting import until


class Model:
    """Stands for a loaded model."""

    def __init__(self, key: tuple[str, ...]) -> None:
        self.key = key


class Loader:
    """Loads at once, or when the test lets it; notes what it loaded and how many loads went on at the same time."""

    def __init__(self) -> None:
        self.loads: list[str] = []
        self.waits: dict[str, threading.Event] = {}
        self.errors: dict[str, Exception] = {}
        self.most = self._now = 0

    def __call__(self, name: str, device: str, dtype: str, *, progress, turn) -> Model:
        self._now += 1
        self.most = max(self.most, self._now)
        self.loads.append(name)
        try:
            progress("Loading the weights", 0.25)
            if name in self.waits:
                assert self.waits[name].wait(10)
            with turn():
                if name in self.errors:
                    raise self.errors[name]
            return Model((name, device, dtype))
        finally:
            self._now -= 1

    def hold(self, name: str) -> threading.Event:
        self.waits[name] = threading.Event()
        return self.waits[name]


@pytest.fixture(autouse=True)
def no_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is let go must be gone without a collection of garbage (which also takes long with torch loaded)."""
    nothing = SimpleNamespace(collect=lambda: 0, freeze=lambda: None, unfreeze=lambda: None)
    monkeypatch.setattr("kvviz.ui.house.gc", nothing)


@pytest.fixture
def loader() -> Loader:
    return Loader()


def house(loader: Loader, capacity: int = 2) -> ModelHouse:
    return ModelHouse(capacity, Turns(), loader)


def loaded(home: ModelHouse, *names: str) -> list[Model]:
    residents = [home.ask(ModelKey(name)) for name in names]
    for resident in residents:
        resident.job.join(10)
    return [resident.model for resident in residents]


def test_two_askers_load_once(loader: Loader) -> None:
    home, go = house(loader), loader.hold("a")
    first, second = home.ask(ModelKey("a")), home.ask(ModelKey("a"))
    assert first is second and first.job.running and first.model is None
    go.set()
    first.job.join(10)
    assert home.ask(ModelKey("a")).model is first.model
    assert first.model.key == ("a", "auto", "auto") and first.job.error is None
    assert loader.loads == ["a"]


def test_device_and_number_format_make_another_model(loader: Loader) -> None:
    home = house(loader)
    one, other = home.ask(ModelKey("a", "cpu", "float32")), home.ask(ModelKey("a", "cpu", "bfloat16"))
    other.job.join(10), one.job.join(10)
    assert [one.model.key[2], other.model.key[2]] == ["float32", "bfloat16"]


def test_loads_go_one_after_the_other(loader: Loader) -> None:
    home, go = house(loader, capacity=3), loader.hold("a")
    first = home.ask(ModelKey("a"))
    until(lambda: loader.loads == ["a"])
    others = [home.ask(ModelKey(name)) for name in "bc"]
    others[0].job.join(0.05)
    assert [one.job.running for one in others] == [True, True]
    assert loader.loads == ["a"] and [one.stage for one in others] == ["", ""]
    go.set()
    for resident in (first, *others):
        resident.job.join(10)
    assert loader.most == 1
    assert loader.loads[0] == "a" and sorted(loader.loads) == ["a", "b", "c"]


def test_progress_can_be_read_while_it_loads(loader: Loader) -> None:
    home, go = house(loader), loader.hold("a")
    resident = home.ask(ModelKey("a"))
    until(lambda: resident.share)
    assert (resident.stage, resident.share, resident.job.running) == ("Loading the weights", 0.25, True)
    go.set()
    resident.job.join(10)


def test_building_waits_for_its_turn_at_the_device(loader: Loader) -> None:
    turns = Turns()
    home = ModelHouse(2, turns, loader)
    with turns.take("a run", threading.Event()):
        resident = home.ask(ModelKey("a"))
        until(lambda: turns.place(resident) == 1)
        assert resident.job.running
    resident.job.join(10)
    assert resident.model is not None


def test_the_least_recently_asked_one_goes(loader: Loader) -> None:
    home = house(loader, capacity=2)
    a, _ = loaded(home, "a", "b")
    assert loaded(home, "a") == [a]
    loaded(home, "c")  # b is the one nobody asked for
    assert loaded(home, "a") == [a]
    assert loader.loads == ["a", "b", "c"]
    loaded(home, "b")
    assert loader.loads == ["a", "b", "c", "b"]


def test_never_more_models_than_it_has_room_for(loader: Loader) -> None:
    home, alive = house(loader, capacity=2), []
    for name in "abcdab":
        alive.append(weakref.ref(loaded(home, name)[0]))
        assert sum(one() is not None for one in alive) <= 2
    assert [one() is not None for one in alive] == [False] * 4 + [True] * 2


def test_those_waiting_in_line_are_not_taken_for_models_in_memory(loader: Loader) -> None:
    """Three visitors with three models and room for one: each is loaded once, not again at every look."""
    home, go = house(loader, capacity=1), loader.hold("a")
    first = home.ask(ModelKey("a"))
    until(lambda: loader.loads == ["a"])
    go_on = loader.hold("b")
    second, third = home.ask(ModelKey("b")), home.ask(ModelKey("c"))
    go.set()
    until(lambda: len(loader.loads) == 2)
    waiting = third if loader.loads[1] == "b" else second
    assert home.ask(waiting.key) is waiting
    go_on.set()
    for resident in (first, second, third):
        resident.job.join(10)
    assert sorted(loader.loads) == ["a", "b", "c"]


@pytest.mark.parametrize("error", [Refused("No {thing}.", thing="disk"), ZeroDivisionError()], ids=["refused", "crash"])
def test_a_failure_stays_until_somebody_tries_again(loader: Loader, error: Exception) -> None:
    home = house(loader)
    loader.errors["a"] = error
    resident = home.ask(ModelKey("a"))
    resident.job.join(10)
    assert home.ask(ModelKey("a")) is resident
    assert resident.model is None and resident.job.error is error and not resident.job.running
    assert loader.loads == ["a"]
    loader.errors.clear()
    home.forget(ModelKey("a"))
    assert loaded(home, "a")[0].key == ("a", "auto", "auto")
    assert loader.loads == ["a", "a"]


def test_forgetting_what_is_not_there_does_nothing(loader: Loader) -> None:
    house(loader).forget(ModelKey("a"))
    assert loader.loads == []


def test_a_failure_does_not_hold_up_the_next_load_or_push_a_model_out(loader: Loader) -> None:
    home = house(loader, capacity=2)
    a, b = loaded(home, "a", "b")
    for name in "xyz":
        loader.errors[name] = Refused("There is no such model.")
    loaded(home, *"xyz")
    loader.errors.clear()
    assert loaded(home, "b") == [b]
    assert a is not None and loaded(home, "c")[0] is not None
    assert loader.loads[-1] == "c"
