"""Both pages in every state, in both languages and with hostile inputs, run by Streamlit's own test runner."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import streamlit as st
from babel.messages.pofile import read_po
from streamlit.runtime.pages_manager import PagesManager
from streamlit.testing.v1 import AppTest

from kvviz.engine.stream import stream
from kvviz.errors import Refused
from kvviz.locale import catalogue_path, translator
from kvviz.models.loading import LanguageModel
from kvviz.ui import home as home_module
from kvviz.ui import language, model_panel, settings
from kvviz.ui.desk import Desk
from kvviz.ui.growth import inputs
from kvviz.ui.growth import run as run_module
from kvviz.ui.growth.run import GrowthRun
from kvviz.ui.house import ModelHouse
from kvviz.ui.shell import PAGES
from kvviz.ui.turns import Turns
from tests.tiny import CONTEXT, tiny_gemma3, tiny_gpt2, tiny_llama
from tests.waiting import background, until

APP = Path(__file__).parents[1] / "app.py"
FRESH_SERVER = PagesManager.__init__  # before any test changes it
PROMPT = "the cat and the dog"
MODELS = {"smollm2-135m": tiny_llama, "gemma-3-270m": tiny_gemma3}


class PausingTurns(Turns):
    """Turns that can be held up before they are given, or in the middle of a forward."""

    def __init__(self) -> None:
        super().__init__()
        self.given = 0
        self.pause_in: int | None = None  # the turn that lasts until `go_on`
        self.pausing, self.go_on = threading.Event(), threading.Event()

    @contextmanager
    def take(self, run: object, stop: threading.Event) -> Iterator[None]:
        with super().take(run, stop):
            self.given += 1
            if self.given == self.pause_in:
                self.pausing.set()
                until(lambda: self.go_on.is_set() or stop.is_set(), 20)
            yield

    def occupied(self) -> threading.Event:
        """Another visitor is at work until the event that is returned is set."""
        leave, there = threading.Event(), threading.Event()

        def work() -> None:
            with super(PausingTurns, self).take("another visitor", threading.Event()):
                there.set()
                leave.wait(20)

        background(work)
        assert there.wait(10)
        return leave


class Visit:
    """A visitor of the app with tiny models, and what the server keeps for them."""

    def __init__(self, loader: Callable[..., LanguageModel] | None = None) -> None:
        self.turns = PausingTurns()
        self.desk = Desk()
        self.loads: list[str] = []
        self.errors: list[Exception] = []  # what the next loads raise
        self.may_load = threading.Event()
        self.may_load.set()
        self.demonstrations: list[GrowthRun] = []
        self.house = ModelHouse(2, self.turns, loader or self._load)
        self.at = AppTest.from_file(str(APP), default_timeout=60)

    def _load(self, name: str, device: str, dtype: str, *, progress, turn) -> LanguageModel:
        self.loads.append(name)
        progress("Loading the weights", 0.3)
        assert self.may_load.wait(20)
        if self.errors:
            raise self.errors.pop(0)
        return MODELS.get(name, tiny_gpt2)()

    def open(self, page: str = "home", loaded: bool = True, **query: str) -> AppTest:
        for name, value in query.items():
            self.at.query_params[name] = value
        self.at.run()
        if page != "home":
            self.at.switch_page(f"pages/{page}.py").run()
        if loaded:
            self.settle()
        return self.at

    def settle(self) -> AppTest:
        """Wait for the loading and for every run, then look once more."""
        for resident in list(self.house._residents.values()):
            resident.job.join(20)
        self.at.run()
        for run in [*self.demonstrations, *filter(None, [self.desk.run])]:
            run.job.join(20)
            assert not run.job.running
        return self.at.run()

    def write(self, text: str = PROMPT, new: int = 6) -> AppTest:
        """Type a prompt and choose the number of new tokens."""
        self.at.text_area(key="prompt").set_value(text)
        self.at.slider(key="new").set_value(new)
        return self.at.run()

    def press(self, key: str = "run") -> AppTest:
        return self.at.button(key=key).click().run()

    def ran(self, text: str = PROMPT, new: int = 6) -> AppTest:
        """The growth page after a whole run."""
        self.open("growth")
        self.write(text, new)
        self.press()
        return self.settle()


@pytest.fixture
def visit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Visit]:
    visit = Visit()
    started = GrowthRun

    def demonstrate(*args: object) -> GrowthRun:
        visit.demonstrations.append(started(*args))
        return visit.demonstrations[-1]

    monkeypatch.setattr(model_panel, "house", lambda: visit.house)
    for module in (inputs, run_module):
        monkeypatch.setattr(module, "desk", lambda: visit.desk)
    monkeypatch.setattr(run_module, "shared_turns", lambda: visit.turns)
    monkeypatch.setattr(home_module, "shared_turns", lambda: visit.turns)
    monkeypatch.setattr(home_module, "GrowthRun", demonstrate)
    st.cache_resource.clear()
    yield visit
    visit.may_load.set()
    visit.turns.go_on.set()
    for run in [*visit.demonstrations, *filter(None, [visit.desk.run])]:
        run.job.cancel()
    st.cache_resource.clear()


@pytest.fixture(autouse=True)
def served_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a server that somebody has opened before: pages run inside app.py. AppTest alone would forget that."""
    begin = PagesManager.__init__

    def after(self: PagesManager, *args: object, **options: object) -> None:
        begin(self, *args, **options)
        PagesManager.uses_pages_directory = False

    monkeypatch.setattr(PagesManager, "__init__", after)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search of all installed packages for components, and collections of garbage, take longer than these pages."""
    monkeypatch.setattr("streamlit.components.v2.manifest_scanner.scan_component_manifests", list)
    for name in ("collect", "freeze", "unfreeze"):
        monkeypatch.setattr(f"kvviz.ui.house.gc.{name}", lambda: None)


def elements(at: AppTest, *kinds: str) -> list[object]:
    """All elements of these kinds, in the main part and in the side bar."""
    return [element for kind in kinds for element in at.get(kind)]


def told(at: AppTest, *kinds: str) -> str:
    """What the elements of these kinds say (all that speak markdown when left out)."""
    kinds = kinds or ("title", "subheader", "markdown", "caption", "error", "warning", "info", "success")
    return "\n".join(element.value for element in elements(at, *kinds))


def component(at: AppTest, key: str) -> dict[str, object]:
    """What a screen component is given."""
    found = [one for one in at.get("bidi_component") if one.proto.id.endswith(f"-{key}")]
    assert len(found) == 1, f"{len(found)} components with the key {key}"
    return json.loads(found[0].proto.json)


def number(at: AppTest, label: str) -> str:
    return next(metric.value for metric in at.metric if metric.label == label)


def sound(at: AppTest) -> None:
    """No exception anywhere, and nothing that looks like one."""
    assert not at.exception, [one.value for one in at.exception]
    assert "Traceback" not in told(at)


# --- Home


def test_home_while_the_model_is_loading(visit: Visit) -> None:
    visit.may_load.clear()
    at = visit.open(loaded=False)
    until(lambda: visit.loads)
    at.run()
    sound(at)
    assert "picture appears here as soon as the model is loaded" in told(at)
    (progress,) = at.get("progress")
    assert (progress.value, progress.proto.text) == (30, "Loading the weights")
    assert not at.get("bidi_component")


def test_home_when_the_model_cannot_be_loaded_and_on_trying_again(visit: Visit) -> None:
    visit.errors = [Refused("{title} is not installed. Run: {command}", title="SmolLM2", command="pip install x")]
    at = visit.open()
    sound(at)
    assert [error.value for error in at.error] == ["SmolLM2 is not installed. Run: pip install x"]
    assert not at.get("bidi_component")
    visit.press("reload_model")
    at = visit.settle()
    assert visit.loads == ["smollm2-135m"] * 2
    assert not at.error and component(at, "home_grid")["seen"]


def test_a_crash_while_loading_is_a_sentence_without_its_reason(visit: Visit) -> None:
    visit.errors = [RuntimeError("/secret/path")]
    at = visit.open()
    sound(at)
    assert [error.value for error in at.error] == ["The model could not be loaded. The server's log says why."]
    assert "secret" not in told(at)
    assert at.button(key="reload_model").label == "Try again"


def test_home_shows_the_model_at_work(visit: Visit) -> None:
    visit.turns.pause_in = 5
    at = visit.open(loaded=False)
    next(iter(visit.house._residents.values())).job.join(20)
    at.run()
    assert visit.turns.pausing.wait(60)
    at.run()
    sound(at)
    (run,) = visit.demonstrations
    assert run.job.running and len(run.steps) == 4
    grid = component(at, "home_grid")
    assert grid["live"] is True and grid["seen"] == run.steps[-1].seen
    visit.turns.go_on.set()
    at = visit.settle()
    sound(at)
    assert visit.demonstrations == [run], "the run is made once"
    grid, strip, now = component(at, "home_grid"), component(at, "home_strip"), run.steps[-1]
    assert grid["live"] is False and (grid["rows"], grid["seen"]) == (3, now.seen)
    assert strip["ids"] == [*run.prompt.ids, *(step.token_id for step in run.steps)]
    assert f"holds {now.stored} tokens in 3 layers: {now.seen * 576 / 1024:.1f} KiB" in told(at)


def test_home_tells_of_a_run_that_failed_and_tries_again(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaking(*args, **options):
        raise Refused("The device ran out of memory at {count} tokens.", count=3)

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "stream", breaking)
        at = visit.open()
    sound(at)
    assert [error.value for error in at.error] == ["The device ran out of memory at 3 tokens."]
    visit.press("demonstrate")
    at = visit.settle()
    assert not at.error and component(at, "home_grid")["seen"]


def test_home_leads_to_every_other_page_once(visit: Visit) -> None:
    at = visit.open()
    links = [link.proto.page for link in at.get("page_link")]
    assert links == [page.name for page in PAGES[1:]]


def test_a_model_let_go_takes_homes_run_with_it(visit: Visit) -> None:
    at = visit.open()
    key = next(iter(visit.house._residents))
    visit.house.forget(key)
    at.run()
    visit.settle()
    assert len(visit.demonstrations) == 2


@pytest.mark.parametrize("name", ["home", "growth"])
def test_another_model_without_a_name_is_no_error(visit: Visit, name: str) -> None:
    at = visit.open(name, loaded=False, model="other")
    sound(at)
    assert visit.loads == [] and not at.error
    if name == "growth":
        assert at.button(key="run").disabled and at.button(key="stop").disabled


@pytest.mark.parametrize("name", ["<b>x</b>", "$x$", "*y*", "a_b_c", "`z`", ":red[w]", "[a](http://b)", "貓"])
def test_the_name_of_a_model_is_shown_as_typed(visit: Visit, name: str) -> None:
    visit.errors = [Refused("There is no folder {name}.", name=repr(name))]
    at = visit.open(loaded=False, model="other")
    at.text_input(key="other_model").set_value(name).run()
    at = visit.settle()
    sound(at)
    (error,) = at.error
    assert re.sub(r"\\(?=[!-/:-@[-`{-~])", "", error.value) == f"There is no folder {name!r}."
    assert not re.search(r"(?<!\\)[*_`$<\[]|(?<!\\):red", error.value), "markdown would be obeyed"


# --- Cache growth


def test_growth_while_the_model_is_loading(visit: Visit) -> None:
    visit.may_load.clear()
    at = visit.open("growth", loaded=False)
    sound(at)
    assert len(at.get("progress")) == 1
    assert at.button(key="run").disabled and at.button(key="stop").disabled
    assert not at.metric


def test_growth_when_the_model_cannot_be_loaded(visit: Visit) -> None:
    visit.errors = [Refused("This model does not fit.")]
    at = visit.open("growth")
    sound(at)
    assert [error.value for error in at.error] == ["This model does not fit."]
    assert at.button(key="run").disabled
    visit.press("reload_model")
    at = visit.settle()
    assert not at.error and not at.button(key="run").disabled


def test_growth_before_the_first_run(visit: Visit) -> None:
    at = visit.open("growth")
    sound(at)
    assert "Press Run" in told(at, "caption")
    assert not at.button(key="run").disabled and at.button(key="stop").disabled
    assert "".join(component(at, "prompt_strip")["labels"]).replace("·", " ") == at.text_area(key="prompt").value
    assert not at.metric and not at.get("plotly_chart")


def test_growth_waits_for_its_turn(visit: Visit) -> None:
    visit.open("growth")
    visit.write()
    leave = visit.turns.occupied()
    at = visit.press()
    until(lambda: visit.desk.run.ahead == 1)
    at.run()
    sound(at)
    (progress,) = at.get("progress")
    assert progress.proto.text == "Waiting for a turn: 1 ahead of you"
    assert not at.button(key="stop").disabled and not at.metric
    leave.set()
    at = visit.settle()
    assert number(at, "Tokens seen") == str(visit.desk.run.steps[-1].seen)


@pytest.mark.parametrize(("pause_in", "text"), [(1, "Prefill: {n} tokens at once"), (4, "Decode: token 3 of 6")])
def test_growth_while_it_runs(visit: Visit, pause_in: int, text: str) -> None:
    visit.open("growth")
    visit.write()
    visit.turns.pause_in = pause_in
    at = visit.press()
    assert visit.turns.pausing.wait(60)
    at.run()
    sound(at)
    run = visit.desk.run
    assert at.get("progress")[0].proto.text == text.format(n=len(run.prompt.ids))
    assert not at.button(key="stop").disabled
    assert not at.get("plotly_chart") and not at.get("slider_step")
    if pause_in > 1:
        (seen,) = (fact["value"] for fact in component(at, "live_numbers") if fact["label"] == "Tokens seen")
        assert seen == str(len(run.prompt.ids) + 2)
        assert component(at, "grid")["live"] and component(at, "run_strip")["live"]
        assert len(component(at, "run_strip")["ids"]) == len(run.prompt.ids) + 3
        held, times = component(at, "live_charts")
        tokens = [len(run.prompt.ids) + step for step in range(3)]
        # 3 layers x 2 x 2 KV heads x 12 numbers x 4 bytes
        assert held["lines"][0]["points"] == [[seen, round(seen * 576 / 2**20, 4)] for seen in tokens]
        assert [len(line["points"]) for line in times["lines"]] == [2, 2]


def test_growth_when_it_is_done(visit: Visit) -> None:
    at = visit.ran(new=6)
    sound(at)
    run = visit.desk.run
    seen = len(run.prompt.ids) + 5
    assert "All 6 new tokens are written." in told(at, "caption")
    assert number(at, "Tokens seen") == f"{seen}"
    assert f"{seen * 576:,} bytes" in told(at, "caption")  # 3 layers x 2 x 2 KV heads x 12 numbers x 4 bytes
    assert at.button(key="stop").disabled and not at.button(key="run").disabled
    assert len(at.get("plotly_chart")) == 2 and not at.warning
    assert [token.token_id for token in run.steps] == [step.token_id for step in stream(tiny_llama(), PROMPT, 6)]
    assert component(at, "run_strip")["ids"] == [*run.prompt.ids, *(step.token_id for step in run.steps)]
    (arithmetic, code) = at.code
    assert "3 layers × 2 (K and V) × 2 KV heads × 12 numbers × 4 bytes = 576 bytes per token" in arithmetic.value
    assert f"prompt = {PROMPT!r}" in code.value
    assert len(at.get("download_button")) == 3
    cached, anew = seen, sum(len(run.prompt.ids) + n for n in range(6))
    assert f"This run computed {cached} tokens with the cache" in told(at) and f"token: {anew}." in told(at)


def test_growth_goes_back_to_any_step(visit: Visit) -> None:
    at = visit.ran(new=6)
    prompt = len(visit.desk.run.prompt.ids)
    slider = at.slider(key="step")
    assert (slider.min, slider.max, slider.value) == (0, 5, 5)
    for step in (0, 3):
        at = at.slider(key="step").set_value(step).run()
        sound(at)
        assert number(at, "Tokens seen") == str(prompt + step)
        assert component(at, "grid")["seen"] == prompt + step
        assert len(component(at, "run_strip")["ids"]) == prompt + step + 1
        shapes = at.dataframe[0].value
        assert shapes.iloc[0, 1] == f"4 × {1 if step else prompt} × 12"
        assert shapes.iloc[0, 2] == f"2 × {prompt + step} × 12"


def test_a_shorter_run_after_a_longer_one_and_a_step_that_is_no_more(visit: Visit) -> None:
    at = visit.ran(new=8)
    at.slider(key="step").set_value(7).run()
    for new in (3, 1):
        visit.write(new=new)
        visit.press()
        at = visit.settle()
        sound(at)
        assert number(at, "Tokens seen") == str(len(visit.desk.run.prompt.ids) + new - 1)
    assert number(at, "Decode, per token") == "–"


CHANGES: dict[str, Callable[[AppTest], object]] = {
    "prompt": lambda at: at.text_area(key="prompt").set_value("another"),
    "new tokens": lambda at: at.slider(key="new").set_value(9),
    "temperature": lambda at: at.slider(key="temperature").set_value(0.5),
    "without cache": lambda at: at.toggle(key="compare").set_value(True),
    "number format": lambda at: at.selectbox(key="dtype").set_value("bfloat16"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_growth_says_when_what_is_shown_is_of_earlier_settings(visit: Visit, change: Callable) -> None:
    at = visit.ran()
    assert not at.warning
    change(at)
    at.run()
    sound(at)
    (warning,) = at.warning
    assert "belongs to the earlier ones" in warning.value
    assert number(at, "Tokens seen") and at.get("plotly_chart"), "what was there stays"


def test_growth_takes_the_warning_back_when_the_settings_are_again_those_of_the_run(visit: Visit) -> None:
    at = visit.ran()
    visit.write("another")
    assert at.warning
    visit.write(PROMPT)
    assert not at.warning


@pytest.mark.parametrize("refused", [True, False], ids=["refused", "crash"])
def test_growth_after_an_error_keeps_what_was_done(
    visit: Visit, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    def breaking(*args, **options):
        for step in stream(*args, **options):
            yield step
            if step.index == 2:
                raise Refused("Out of {what}.", what="$x$") if refused else RuntimeError("/secret/path")

    visit.open("growth")
    visit.write()
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "stream", breaking)
        visit.press()
        at = visit.settle()
    sound(at)
    expected = r"Out of \$x\$." if refused else "The run failed. The server's log says why."
    assert [error.value for error in at.error] == [expected]
    assert "secret" not in told(at)
    assert number(at, "Tokens seen") == str(len(visit.desk.run.prompt.ids) + 2)
    visit.press()
    at = visit.settle()
    assert not at.error and "All 6 new tokens" in told(at)


@pytest.mark.parametrize("steps", [0, 3])
def test_growth_after_stop(visit: Visit, steps: int) -> None:
    visit.open("growth")
    visit.write()
    visit.turns.pause_in = max(1, steps)
    leave = visit.turns.occupied() if not steps else None
    at = visit.press()
    if steps:
        assert visit.turns.pausing.wait(60)
    at.run()
    at = visit.press("stop")
    sound(at)
    run = visit.desk.run
    assert not run.job.running and len(run.steps) == steps
    assert [info.value for info in at.info] == [f"Stopped after {steps} tokens."]
    assert at.button(key="stop").disabled and not at.button(key="run").disabled
    assert len(at.metric) == (5 if steps else 0)
    if leave:
        leave.set()


def test_growth_checks_the_bits(visit: Visit) -> None:
    visit.ran()
    at = visit.press("check")
    sound(at)
    lines = [text.value for text in at.text]
    assert len(lines) == 3
    assert all(line.startswith("✓ ") and "the same bits in 3 of the 3 layers" in line for line in lines)


def test_growth_checks_the_bits_of_what_a_window_let_go(visit: Visit) -> None:
    visit.open("growth", model="gemma-3-270m")
    visit.write(new=20)
    visit.press()
    visit.settle()
    at = visit.press("check")
    sound(at)
    assert at.text[0].value.startswith("✓ ") and "in 1 of the 1 layers" in at.text[0].value
    assert "5 layers no longer hold it" in at.text[0].value


def test_growth_with_and_without_the_cache(visit: Visit) -> None:
    visit.open("growth")
    visit.at.toggle(key="compare").set_value(True)
    visit.write()
    visit.turns.pause_in = 6 + 3
    at = visit.press()
    assert visit.turns.pausing.wait(60)
    at.run()
    assert at.get("progress")[0].proto.text.startswith("Again without the cache: token")
    visit.turns.go_on.set()
    at = visit.settle()
    sound(at)
    assert re.fullmatch(r"\d+\.\d×", number(at, "Measured speed-up"))
    assert "The text is the same, token for token" in told(at, "success")
    assert len(at.get("plotly_chart")) == 3


def test_growth_of_a_hybrid_model(visit: Visit) -> None:
    visit.open("growth", model="gemma-3-270m")
    visit.write(new=20)
    visit.press()
    at = visit.settle()
    sound(at)
    seen = visit.desk.run.steps[-1].seen
    assert component(at, "grid")["stored"] == [7] * 5 + [seen]
    lines = at.code[0].value.split("\n")
    assert "5 layers" in lines[0] and "1 layers" in lines[1] and "together: 768 bytes per token" in lines[2]
    assert "looks at 8 tokens. Between steps it stores 7" in told(at, "caption")


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_growth_on_a_server_with_a_small_limit(visit: Visit, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(inputs, "settings", lambda: settings.Settings(max_new_tokens=limit))
    visit.open("growth")
    visit.press()
    at = visit.settle()
    sound(at)
    assert len(visit.desk.run.steps) == limit


def test_a_deep_link_as_the_first_request_after_the_start(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has run app.py yet, so Streamlit runs the page's file alone; the frame must be around it all the same."""
    monkeypatch.setattr(PagesManager, "__init__", FRESH_SERVER)
    visit.at.query_params["lang"] = "zh-TW"
    at = visit.at.switch_page("pages/growth.py").run()
    sound(at)
    assert at.button_group(key="lang").value == "zh-TW"
    assert at.title[0].value == translator("zh-TW")("Cache growth")
    assert at.selectbox(key="model").value == "smollm2-135m" and at.button(key="run")


# --- What people type

BAD = {
    "empty": "",
    "one token": "a",
    "white space": " \n\t  ",
    "20,000 characters": "word " * 4000,
    "past the context": "x " * CONTEXT,
    "up to the context": "q" * CONTEXT,
    "NUL": "a\0b",
    "script": "<script>alert(1)</script>",
    "formula": "$x$ and *b* and `c` # d",
    "control token": "<|im_start|>system",
    "own control token": "a<eos>b",
    "emoji": "👩🏽‍🚀 貓 עברית",
    "braces": "{n} {} %s",
}
MARKS = str.maketrans({"·": " ", "⏎": "\n", "⇥": "\t"})


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_whatever_is_typed_gives_a_result_or_a_sentence(visit: Visit, text: str) -> None:
    visit.open("growth")
    at = visit.write(text, 3)
    sound(at)
    if at.error:
        (error,) = at.error
        assert error.value.count(".") in (1, 2) and len(error.value) < 250
        at = visit.press()
        sound(at)
        assert visit.desk.run is None and at.error
    else:
        visit.press()
        at = visit.settle()
        sound(at)
        assert not at.error and visit.desk.run.steps and visit.desk.run.wanted.text == text
    if len(text) > 5:
        assert text not in told(at), "text of a visitor is never markdown"


REFUSED = {"empty": "prompt is empty", "20,000 characters": "at most 4,096", "past the context": "at most 256"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_run_is_told_with_its_limit(visit: Visit, name: str) -> None:
    visit.open("growth")
    at = visit.write(BAD[name])
    assert REFUSED[name] in at.error[0].value


@pytest.mark.parametrize("name", ["one token", "white space", "script", "formula", "control token", "braces"])
def test_texts_are_shown_exactly_as_typed(visit: Visit, name: str) -> None:
    visit.open("growth")
    at = visit.write(BAD[name], 2)
    assert "".join(component(at, "prompt_strip")["labels"]).translate(MARKS).replace("\n\n", "\n") == BAD[name]
    visit.press()
    at = visit.settle()
    count = len(visit.desk.run.prompt.ids)
    labels = component(at, "run_strip")["labels"][:count]
    assert "".join(labels).translate(MARKS).replace("\n\n", "\n") == BAD[name]


def test_the_context_ends_a_run(visit: Visit) -> None:
    at = visit.ran(BAD["up to the context"], 5)
    assert len(visit.desk.run.prompt.ids) == CONTEXT
    assert "the model's context is full" in told(at, "caption")


def test_a_typed_control_token_is_named_as_such(visit: Visit) -> None:
    visit.open("growth")
    at = visit.write(BAD["own control token"])
    sound(at)
    assert "contains control tokens" in told(at, "info")
    assert component(at, "prompt_strip")["kinds"].count("2") == 1


def test_half_a_character_is_a_sentence(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser sends none, but a text area is not the only way to fill it."""
    visit.open("growth")
    monkeypatch.setattr(inputs.st, "text_area", lambda *args, **options: "a\ud83d")
    at = visit.at.run()
    sound(at)
    assert "U+D83D" in at.error[0].value and visit.press().error and visit.desk.run is None


def test_a_chat_template_that_is_not_there_is_a_sentence(visit: Visit) -> None:
    at = visit.open("growth")
    at.toggle(key="chat").set_value(True).run()
    sound(at)
    assert "without a usable chat template" in at.error[0].value and visit.press().error and visit.desk.run is None


@pytest.mark.parametrize("option", ["story", "fact", "chinese", "repeat"])
def test_examples_fill_the_prompt(visit: Visit, option: str) -> None:
    at = visit.open("growth")
    at.button_group(key="preset").set_value(option).run()
    sound(at)
    assert at.text_area(key="prompt").value == inputs.PRESETS[option][1]
    at.switch_page("pages/home.py").run()
    at.switch_page("pages/growth.py").run()
    assert at.text_area(key="prompt").value == inputs.PRESETS[option][1], "lost on the way to another page"
    assert not at.button(key="run").disabled


# --- Both languages

OPENED, CLOSED = "‹", "›"
# what is the same in every language: numbers with their units, names of models, languages, and of this app
NUMBERS = re.compile(r"[–\d.,×:\s]*|[\d.,]+ (ms|B|[KMG]iB)|float32|bfloat16|float16|CPU|CUDA|MPS|[\d ×]+")
NAMES = {"SmolLM2 135M Instruct", "Gemma 3 270M", "English", "繁體中文", "Language · 語言", "kvviz"}
FIELDS = ("label", "body", "text", "help", "alt", "placeholder", "title", "name")


def _texts(at: AppTest) -> Iterator[str]:
    """Every text a visitor can read, as the browser is sent it; not code, model text or the weights' source."""
    stack = list(at._tree.children.values())
    while stack:
        element = stack.pop()
        if children := getattr(element, "children", None):
            stack += children.values()
        proto = getattr(element, "proto", None)
        if proto is None or getattr(element, "type", "") in ("code", "html"):  # html: a style sheet
            continue
        for field, value in proto.ListFields():
            if field.name in FIELDS and isinstance(value, str):
                yield value
            if field.name == "options":
                yield from (one if isinstance(one, str) else one.content for one in value)
        if getattr(element, "type", "") == "dataframe":
            yield from map(str, element.value.columns)
        if getattr(element, "type", "") == "bidi_component":
            yield from _words(json.loads(proto.json)["words"])


def _words(words: object) -> Iterator[str]:
    if isinstance(words, str):
        yield words
    elif isinstance(words, dict | list):
        for word in words.values() if isinstance(words, dict) else words:
            yield from _words(word)


STATES: dict[str, Callable[[Visit], object]] = {
    "home": lambda visit: visit.open(),
    "nothing run": lambda visit: visit.open("growth"),
    "done": lambda visit: visit.ran(),
    "changed": lambda visit: (visit.ran(), visit.write("another"), visit.press("check")),
    "compared": lambda visit: (
        visit.open("growth"), visit.at.toggle(key="compare").set_value(True), visit.write(), visit.press(),
        visit.settle(),
    ),
    "hybrid": lambda visit: (
        visit.open("growth", model="gemma-3-270m"), visit.write(new=12), visit.press(), visit.settle(),
        visit.press("check"),
    ),
    "refused": lambda visit: (visit.open("growth"), visit.write("")),
    "failed": lambda visit: (visit.errors.append(RuntimeError()), visit.open("growth")),
    "loading": lambda visit: (visit.may_load.clear(), visit.open(loaded=False)),
    "control token": lambda visit: (visit.open("growth"), visit.write("a<eos>b")),
}  # fmt: skip


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_every_text_goes_through_the_translator(visit: Visit, monkeypatch: pytest.MonkeyPatch, state: Callable) -> None:
    monkeypatch.setattr(language, "translator", lambda name: lambda message: OPENED + message + CLOSED)
    state(visit)
    sound(visit.at)
    untold = {text for text in _texts(visit.at) if not (text.startswith(OPENED) or CLOSED in text)}
    source = {tiny_llama().source, tiny_gemma3().source}
    left = {text for text in untold - NAMES if not NUMBERS.fullmatch(text) and text.replace("\\", "") not in source}
    assert left == set()


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_every_text_has_its_chinese(visit: Visit, monkeypatch: pytest.MonkeyPatch, state: Callable) -> None:
    chinese, asked = translator("zh-TW"), set[str]()

    def listening(name: str) -> Callable[[str], str]:
        assert name == "zh-TW"
        return lambda message: asked.add(message) or chinese(message)

    monkeypatch.setattr(language, "translator", listening)
    visit.at.query_params["lang"] = "zh-TW"
    state(visit)
    sound(visit.at)
    with catalogue_path("zh-TW").open("rb") as file:
        known = {message.id for message in read_po(file) if message.string}
    assert asked - known - {"CPU", "CUDA", "MPS", "float32", "bfloat16", "float16"} == set()
    shown = set(_texts(visit.at))
    assert chinese("Model") in shown
    same = {message for message in asked if chinese(message) == message}
    assert not shown & (asked - same), "shown in English although there is a translation"


@pytest.mark.parametrize(
    ("locale", "expected"), [("zh-TW", "zh-TW"), ("zh-HK", "zh-TW"), ("en-GB", "en"), ("ja", "en")]
)
def test_the_browsers_language_is_where_it_starts(visit: Visit, locale: str, expected: str) -> None:
    visit.at.context = {"locale": locale}
    at = visit.open("growth")
    sound(at)
    assert at.title[0].value == translator(expected)("Cache growth")


def test_switching_the_language_keeps_the_run_and_the_inputs(visit: Visit) -> None:
    at = visit.ran()
    run = visit.desk.run
    at.button_group(key="lang").set_value("zh-TW").run()
    sound(at)
    assert visit.desk.run is run and not at.warning
    assert at.text_area(key="prompt").value == PROMPT and at.slider(key="new").value == 6
    assert at.title[0].value == translator("zh-TW")("Cache growth") != "Cache growth"


def test_a_visit_to_home_and_back_keeps_the_run(visit: Visit) -> None:
    at = visit.ran()
    run = visit.desk.run
    at.switch_page("pages/home.py").run()
    sound(at)
    at.switch_page("pages/growth.py").run()
    sound(at)
    assert visit.desk.run is run and number(at, "Tokens seen")
    assert at.text_area(key="prompt").value == PROMPT


def test_choices_made_by_the_url_survive_the_way_to_another_page(visit: Visit) -> None:
    at = visit.open("home", lang="zh-TW", model="gemma-3-270m", dtype="bfloat16", device="cpu")
    for page in ("growth", "home"):
        at.query_params.clear()  # as the browser does on the way
        at.switch_page(f"pages/{page}.py").run()
        sound(at)
        assert [at.selectbox(key=key).value for key in ("model", "dtype", "device")] == [
            "gemma-3-270m",
            "bfloat16",
            "cpu",
        ]
        assert (at.query_params["model"], at.query_params["lang"]) == ("gemma-3-270m", "zh-TW")
    assert visit.loads == ["gemma-3-270m"]


def test_choices_of_the_url_that_do_not_exist_are_the_defaults(visit: Visit) -> None:
    at = visit.open("growth", lang="<b>", model="../../etc", dtype="int3", device="toaster", new="-5", temperature="x")
    sound(at)
    assert [at.selectbox(key=key).value for key in ("model", "dtype", "device")] == ["smollm2-135m", "auto", "auto"]
    assert at.slider(key="new").value == 64 and at.title[0].value == "Cache growth"
