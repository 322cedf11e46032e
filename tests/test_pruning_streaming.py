"""The StreamingLLM picture: frames by hand, and the view in every state on tiny models beside the API's numbers."""

from collections.abc import Iterator

import numpy as np
import pytest

import kvviz
from kvviz.analysis.streaming import PAPER, crossing, paper_frame, running_frame, sinks_frame
from kvviz.engine import longtext
from kvviz.engine.longtext import can_pass_context, text_losses
from kvviz.evaluation import compare_policies
from kvviz.figures.streaming import running_loss, sinks_and_paper
from kvviz.locale import N_
from kvviz.policies import Full, SinksWindow, Window
from kvviz.ui.pruning import streaming, streaming_parts, streaming_work
from kvviz.ui.pruning.streaming_inputs import Wanted, arm
from kvviz.ui.pruning.streaming_save import as_html, as_python, losses_frame
from kvviz.ui.pruning.streaming_words import past, verdict
from kvviz.ui.pruning.streaming_work import Shelf, Streamed, cost, read_all
from kvviz.ui.shell import Page
from tests.bench import Worker, at_work
from tests.test_attention_ui import figure, numbers
from tests.test_pages import (
    Visit,
    quick,  # noqa: F401 (fixtures of every page's tests)
    served_before,  # noqa: F401
    sound,
    told,
    visit,  # noqa: F401
)
from tests.tiny import CONTEXT, tiny_gpt2, tiny_llama

TEXT = "the cat sat on the mat and the dog sat on the log, one two three four five six seven, ten nine eight, mat log"
BUDGET = 12


@pytest.fixture
def reader(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:  # noqa: F811
    shelf = Shelf()
    for module in (streaming, streaming_parts):
        monkeypatch.setattr(module, "shelf", lambda: shelf)
    with at_work(visit, monkeypatch, "pruning", "streaming") as worker:
        yield worker


def read(reader: Worker, text: str = TEXT, **query: str) -> Worker:
    reader.open(**{"streaming_budget": str(BUDGET), "streaming_sinks": "1,4", **query})
    reader.type(text)
    reader.press()
    reader.settle()
    return reader


def said(perplexity: float) -> str:
    return f"{perplexity:,.2f}" if perplexity < 1000 else f"{perplexity:,.0f}"


def streamed(full: list[float], by_sinks: dict[int, list[float]], budget: int, lm=None) -> Streamed:
    arms = tuple((count, arm(count, budget, "relative")) for count in by_sinks)
    wanted = Wanted(None, tuple(range(len(full) + 1)), "relative", budget, arms)
    arrays = {count: np.array(nll, dtype=np.float32) for count, nll in by_sinks.items()}
    return Streamed(wanted, lm or tiny_llama(), np.array(full, dtype=np.float32), arrays, 1.0)


# --- Frames and figures by hand


def test_the_running_mean_by_hand() -> None:
    frame = running_frame({"a": np.array([1.0, 2.0, 6.0, 3.0]), "b": np.array([4.0])}, 2)
    assert frame["arm"].tolist() == ["a", "a", "a", "b"]
    assert frame["position"].tolist() == [2, 3, 4, 1]
    assert frame["loss_nats"].tolist() == [1.5, 4.0, 4.5, 4.0]


def test_long_lines_are_thinned_to_their_end() -> None:
    frame = running_frame({"a": np.arange(10_000, dtype=np.float32)}, 1)
    assert len(frame) <= 1500 and frame["position"].iloc[-1] == 10_000
    assert (frame["loss_nats"] == frame["position"] - 1).all()


def test_the_trained_length_is_crossed_by_hand() -> None:
    nll = np.log(np.array([9, 9, 2, 2, 8, 8], dtype=np.float32))
    found = crossing(nll, 4)
    assert found[3:] == (2, 2, 2) and found[:3] == pytest.approx((2, 8, 8)) and found.growth == pytest.approx(4)
    ending = crossing(np.append(nll, np.log(32)), 4, last=1)
    assert ending.tokens_before == 3 and ending.end == pytest.approx(32) and ending.tokens_end == 1
    assert crossing(nll, 6) is None and crossing(nll, None) is None
    assert crossing(nll, 5)[3:] == (1, 1, 1)


def test_the_papers_table() -> None:
    frame = paper_frame().set_index(["model", "sinks"])["perplexity"]
    assert len(frame) == 20 and frame["Llama-2-7B", 0] == 3359.95 and frame["MPT-7B", 8] == 14.98
    assert all(len(row) == 5 for row in PAPER.values())


def test_perplexity_by_sinks_is_that_after_the_first_eviction() -> None:
    lm, ids = tiny_llama(), kvviz.encode(tiny_llama(), TEXT).ids
    policies = [Window(budget=BUDGET), SinksWindow(budget=BUDGET, sinks=4)]
    run = compare_policies(lm, ids, policies)
    frame = sinks_frame({0: run.losses[1].nll, 4: run.losses[2].nll}, BUDGET)
    expected = run.perplexities().iloc[1:]
    np.testing.assert_allclose(frame["perplexity"], expected["after"], rtol=1e-6)
    assert frame["scored_tokens"].tolist() == expected["scored_after"].tolist()
    assert sinks_frame({0: run.losses[1].nll}, len(ids)).empty


def test_losses_past_the_trained_length_are_those_of_the_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longtext, "_PIECE", 130)
    lm, ids = tiny_llama(), np.random.default_rng(0).integers(3, 300, CONTEXT + 60).tolist()
    shares: list[float] = []
    for policy in (Full(), Window(budget=30), SinksWindow(budget=30)):
        expected = compare_policies(lm, ids, [policy], past_context=True).losses[-1].nll
        np.testing.assert_allclose(text_losses(lm, ids, policy, progress=shares.append), expected, atol=1e-4)
    assert shares[: len(shares) // 3] == sorted(shares[: len(shares) // 3]) and shares.count(1.0) == 3
    assert can_pass_context(lm) and not can_pass_context(tiny_gpt2())


def test_the_pictures_by_hand() -> None:
    frame = running_frame({"full": np.array([1.0, 2.0]), "window": np.array([3.0, 4.0])}, 1)
    drawn = running_loss(frame, {"full": "full", "window": "window"}, 1, {1: "first eviction", 2: "trained length"})
    assert [line.name for line in drawn.data] == ["full", "window"] and list(drawn.data[1].y) == [3, 4]
    assert [note.text for note in drawn.layout.annotations] == ["first eviction", "trained length"]
    measured = sinks_frame({0: np.log(np.full(9, 50.0)), 4: np.log(np.full(9, 10.0))}, 2)
    drawn = sinks_and_paper(measured, paper_frame(), 9.0)
    bars, full, *papers = drawn.data
    assert list(bars.x) == [0, 3] and list(bars.y) == pytest.approx([50, 10]) and set(full.y) == {9.0}
    assert [line.name for line in papers] == list(PAPER) and papers[3].y[0] == 3359.95
    low, high = drawn.layout.yaxis.range
    assert 10**low < 9.0 and 10**high > 3359.95


# --- What is said


def test_the_sentences_follow_the_numbers() -> None:
    def flat(value: float, count: int = 600) -> list[float]:
        return [float(np.log(value))] * count

    bad = streamed(flat(10), {0: flat(80), 1: flat(11), 4: flat(12)}, 20)
    words = verdict(N_, bad)[0]
    assert "on 579 tokens" in words and "10.00 with the full cache, 80.00 in the window" in words
    assert "With 1 of the places given to the first tokens of the text it is 11.00." in words
    assert "With 4" in words and "hardly needs" not in words
    assert "hardly needs" in verdict(N_, streamed(flat(10), {0: flat(10.5)}, 20))[0]
    assert verdict(N_, streamed(flat(10, 15), {0: flat(10, 15)}, 20))[0].startswith("0 tokens evicted")


@pytest.mark.parametrize(
    ("after", "sentence"), [(300, "explodes"), (15, "but does not explode"), (11, "not get worse")]
)
def test_what_is_said_past_the_trained_length(after: float, sentence: str) -> None:
    nll = [float(np.log(10.0))] * CONTEXT + [float(np.log(after))] * 300
    words = past(N_, streamed(nll, {0: nll, 4: nll}, 20))
    assert sentence in words and f"{after:.2f} on the 300 behind and {after:.2f} on the last 300" in words
    assert "With 4 sinks + window the same tokens have 10.00" in words


def test_a_text_that_ends_before_the_trained_length_says_so() -> None:
    assert "ends before the model's trained length of 256" in past(N_, streamed([1.0] * 100, {0: [1.0] * 100}, 20))
    few = [1.0] * (CONTEXT + 5)
    assert "Only 5 tokens" in past(N_, streamed(few, {0: few}, 20))


# --- The view


def test_before_the_first_run(reader: Worker) -> None:
    at = reader.open()
    sound(at)
    assert "Press Read" in told(at, "caption") and not at.get("plotly_chart")
    assert at.pills[0].value == ["1", "2", "4", "8"] and at.segmented_control(key="streaming_length").value == "2048"


def test_the_screen_shows_what_the_api_gives(reader: Worker) -> None:
    at = read(reader).at
    sound(at)
    lm, found = tiny_llama(), reader.result
    policies = [policy for _, policy in found.wanted.arms]
    assert [str(policy) for policy in policies] == [
        "Window(budget=12)", "SinksWindow(budget=12, sinks=1)", "SinksWindow(budget=12)",
    ]  # fmt: skip
    run = compare_policies(lm, found.wanted.ids, policies)
    for losses, nll in zip(run.losses, [found.full, *found.by_sinks.values()], strict=True):
        np.testing.assert_allclose(nll, losses.nll, atol=1e-4)
    after = run.perplexities()["after"]
    shown = at.table[0].value
    assert shown["sinks"].tolist() == ["0", "1", "2", "4", "8"]
    assert shown["measured here"].tolist() == [said(after[1]), said(after[2]), "–", said(after[3]), "–"]
    assert shown["Llama-2-7B"].tolist() == ["3,360", "11.88", "10.51", "9.59", "9.54"]
    lines = figure(at, "streaming_loss").data
    assert [line.name for line in lines] == ["full cache", "window of 12", "4 sinks + window of 8"]
    assert not any(np.isnan(numbers(line.y)).any() for line in lines)
    assert "ends before the model's trained length" in told(at, "markdown")
    assert losses_frame(found).shape[0] == 4 * (len(found.wanted.ids) - 1)


def test_a_text_past_the_trained_length_is_read_and_marked(reader: Worker) -> None:
    at = read(reader, " ".join([TEXT] * 14), streaming_length="all").at
    sound(at)
    assert len(reader.result.wanted.ids) > CONTEXT + 256
    marks = [note.text for note in figure(at, "streaming_loss").layout.annotations]
    assert marks == ["first eviction", "trained length: 256"]
    assert "behind and" in told(at, "markdown")


def test_position_modes_meet_in_a_table_and_only_new_caches_are_read(reader: Worker) -> None:
    at = read(reader).at
    assert len(at.table) == 1
    first = reader.result
    at.segmented_control(key="streaming_mode").set_value("naive").run()
    assert "settings above have changed" in told(at, "warning")
    reader.press()
    reader.settle()
    assert reader.result.full is first.full and len(at.table) == 2
    table = at.table[1].value
    assert table["positions"].tolist() == ["cache-relative positions", "naive positions"]
    naive = SinksWindow(budget=BUDGET, sinks=4, positions="naive")
    after = compare_policies(tiny_llama(), first.wanted.ids, [naive]).perplexities()["after"][1]
    assert table["4 sinks"].tolist()[1] == said(after)
    at.segmented_control(key="streaming_mode").set_value("relative").run()
    assert not at.warning and reader.benches["streaming"].find(first.wanted).result is first


def test_a_text_within_the_cache_evicts_nothing(reader: Worker) -> None:
    at = read(reader, streaming_budget="400").at
    sound(at)
    assert "0 tokens evicted" in told(at, "markdown") and not at.table
    assert [note.text for note in figure(at, "streaming_loss").layout.annotations or ()] == []


def test_a_cache_too_small_for_the_sinks_is_refused(reader: Worker) -> None:
    reader.open(streaming_budget="4", streaming_sinks="8")
    at = reader.type(TEXT)
    sound(at)
    assert "has no room for 8 first tokens" in told(at, "error")
    reader.press()
    assert not at.get("plotly_chart")


def test_a_model_without_rotary_positions(visit: Visit, monkeypatch: pytest.MonkeyPatch, reader: Worker) -> None:  # noqa: F811
    monkeypatch.setattr("tests.test_pages.MODELS", {"smollm2-135m": tiny_gpt2})
    at = read(reader, " ".join([TEXT] * 12), streaming_length="all").at
    assert "has positions for 256 tokens and no more" in told(at, "info")
    assert "no rotary positions" in told(at, "error")
    at.segmented_control(key="streaming_mode").set_value("original").run()
    reader.press()
    reader.settle()
    assert not at.error and len(reader.result.wanted.ids) == 256


def test_stop_keeps_what_was_read(reader: Worker) -> None:
    reader.open(streaming_budget=str(BUDGET), streaming_sinks="4")
    reader.type(TEXT)
    reader.visit.turns.pause_in = reader.visit.turns.given + 7
    reader.press()
    assert reader.visit.turns.pausing.wait(20)
    at = reader.at.run()
    sound(at)
    at.button(key="streaming_stop").click().run()
    reader.settle()
    assert "Stopped" in told(at, "info") and not at.get("plotly_chart")
    reader.press()
    reader.settle()
    assert at.get("plotly_chart")


def test_only_what_is_new_is_read_and_its_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def note(lm, ids, policy, **options) -> np.ndarray:
        calls.append(str(policy))
        options["progress"](1.0)
        return np.zeros(len(ids) - 1, dtype=np.float32)

    monkeypatch.setattr(streaming_work, "text_losses", note)
    shelf, shares = Shelf(), []
    wanted = Wanted(None, tuple(range(50)), "relative", 10, ((0, Window(budget=10)), (4, SinksWindow(budget=10))))
    whole, measured = streaming_work.seconds_needed(wanted, shelf)
    assert not measured and whole == pytest.approx(cost(50, Full()) + 2 * cost(50, Window(budget=10)))
    read_all(None, wanted, shelf, shares.append, None)
    assert calls == ["Full()", "Window(budget=10)", "SinksWindow(budget=10)"] and shares[-1] == pytest.approx(1)
    assert streaming_work.seconds_needed(wanted, shelf) == (0, True)
    more = Wanted(None, wanted.ids, "relative", 10, (*wanted.arms, (8, SinksWindow(budget=10, sinks=8))))
    read_all(None, more, shelf, shares.append, None)
    assert calls[3:] == ["SinksWindow(budget=10, sinks=8)"]


def test_what_is_taken_away(reader: Worker) -> None:
    read(reader)
    found = reader.result
    lines = as_python(found)
    compile(lines, "notebook", "exec")
    assert "past_context=True" in lines and "kvviz.policies.SinksWindow(budget=12, sinks=1)" in lines
    html = as_html(Page(N_, "light", None), found, 16, "en")
    assert html.count("plotly-graph-div") >= 2 and "How many sinks does it take?" in html and found.lm.title in html
