"""The budget sweep: the same tokens at every budget, and the view in every state, on tiny models."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

import kvviz
from kvviz.errors import Refused
from kvviz.evaluation import compare_policies
from kvviz.locale import N_
from kvviz.policies import H2O, Random, SinksWindow, SnapKV, Window
from kvviz.sweeping import SHARES, sweep
from kvviz.ui.pruning.sweep import table
from kvviz.ui.pruning.sweep_save import as_python
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
from tests.tiny import tiny_llama

TEXT = "the cat sat on the mat and the dog sat on the log, one two three four five six seven"
IDS = [3 + 7 * index % 290 for index in range(60)]


@pytest.fixture
def at_sweep(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:  # noqa: F811
    with at_work(visit, monkeypatch, "pruning", "sweep") as worker:
        yield worker


def swept(worker: Worker, text: str = TEXT, **query: str) -> Worker:
    worker.open(**{"sweep_arms": "h2o", **query})
    worker.type(text)
    worker.press()
    worker.settle()
    return worker


# --- kvviz.sweep


def test_every_point_is_the_perplexity_of_the_second_half() -> None:
    lm = tiny_llama()
    arms = [Window(budget=0.5), H2O(budget=0.5), SnapKV(budget=0.5, window=4), Random(budget=0.5)]
    found = kvviz.sweep(lm, IDS, arms, shares=[0.1, 0.3, 1.0])
    assert found["policy"].tolist()[0] == "Full()" and len(found) == 1 + 3 * 4
    assert found["scored_tokens"].unique().tolist() == [29], "tokens 31 to 59"
    for share, budget in ((0.1, 6), (0.3, 18), (1.0, 60)):
        sized = [Window(budget=budget), H2O(budget=budget), SnapKV(budget=budget, window=4), Random(budget=budget)]
        oracle = kvviz.evaluate(lm, IDS, sized)
        late = oracle[oracle["position"] > 30].groupby("policy", sort=False)["nll"].mean()
        mine = found[found["share"] == share].set_index("policy")["perplexity"]
        for policy in sized:
            assert mine[str(policy)] == pytest.approx(np.exp(late[str(policy)]), rel=1e-5)
    dense = found["perplexity"][0]
    np.testing.assert_allclose(found[found["share"] == 1]["perplexity"], dense, rtol=1e-5)
    assert not found[found["share"] == 1]["evicted"].any() and found[found["share"] < 0.5]["evicted"].all()


def test_what_is_stored_and_dropped_is_counted() -> None:
    lm = tiny_llama()
    found = sweep(lm, IDS, [Window(budget=1), SnapKV(budget=1, window=4)], shares=[0.2])
    run = compare_policies(lm, IDS, [Window(budget=12), SnapKV(budget=12, window=4)]).perplexities()
    for column, mine in (("evicted", "evicted"), ("stored", "stored_tokens"), ("cache_bytes", "cache_bytes")):
        assert found[mine].tolist() == run[column].tolist()
    # prompt of 30 cut to 12, 29 came later when the last token was predicted
    assert found["stored_tokens"].tolist() == [59, 12, 41]


def test_budgets_without_room_have_no_row() -> None:
    found = sweep(tiny_llama(), IDS[:20], [SinksWindow(budget=0.5), Window(budget=0.5)], shares=[0.05, 0.5])
    assert found["budget_tokens"].tolist()[1:] == [1, 10, 10]
    assert found["policy"][1] == "Window(budget=1)"


@pytest.mark.parametrize("count", [1, 2])
def test_a_text_without_a_second_half_is_refused(count: int) -> None:
    with pytest.raises(Refused, match="second half"):
        sweep(tiny_llama(), IDS[:count], [Window(budget=0.5)])


@pytest.mark.parametrize("share", [0, -0.1, 1.5])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(Refused, match="share"):
        sweep(tiny_llama(), IDS, [Window(budget=0.5)], shares=[0.5, share])


def test_three_tokens_are_enough() -> None:
    found = sweep(tiny_llama(), IDS[:3], [Window(budget=0.5)], shares=[0.3, 1.0])
    assert found["scored_tokens"].tolist() == [1, 1, 1] and np.isfinite(found["perplexity"]).all()


# --- The view


def test_before_the_first_run(at_sweep: Worker) -> None:
    at = at_sweep.open()
    sound(at)
    assert "Press Sweep" in told(at, "caption") and not at.get("plotly_chart")


def test_the_screen_shows_what_the_api_gives(at_sweep: Worker) -> None:
    at = swept(at_sweep, sweep_arms="sinks_window_original,h2o,snapkv").at
    sound(at)
    ids = at_sweep.result.wanted.ids
    arms = [SinksWindow(budget=0.2, positions="original"), H2O(budget=0.2), SnapKV(budget=0.2), Random(budget=0.2)]
    expected = sweep(tiny_llama(), ids, arms)
    lines = figure(at, "sweep_lines").data
    assert [line.name for line in lines] == [
        *("sinks + window, original positions", "H2O", "SnapKV", "random", "full cache")
    ]
    h2o = expected[expected["policy"].str.startswith("H2O")]
    np.testing.assert_allclose(numbers(lines[1].x), 100 * h2o["share"])
    np.testing.assert_allclose(numbers(lines[1].y), h2o["perplexity"], rtol=1e-6)
    np.testing.assert_allclose(numbers(lines[-1].y), expected["perplexity"][0])
    shown = at.table[0].value.set_index("perplexity")
    assert shown.columns.tolist() == [f"{100 * share:g} %" for share in SHARES]
    assert shown.loc["H2O"].tolist() == [f"{value:,.2f}" for value in h2o["perplexity"]]
    assert shown.loc["full cache", "100 %"] == f"{expected['perplexity'][0]:,.2f}"
    # a tiny text: 5 % has no room for four sinks and the newest token
    assert shown.loc["sinks + window, original positions", "5 %"] == "–"
    assert shown.loc["random", "5 %"] == "–" and shown.loc["H2O", "5 %"] != "–"
    captions = told(at, "caption")
    assert "–: no reading" in captions and f"positions {len(ids) // 2 + 1} to {len(ids) - 1}" in captions
    assert "SnapKV cuts once, at the end of the prompt" in captions
    # the 32 voters fill every budget that is smaller than the prompt
    most = max(budget for budget in (round(share * len(ids)) for share in SHARES) if budget < len(ids) // 2)
    assert f"SnapKV: with {most} tokens" in captions


def test_stop_keeps_what_is_finished(at_sweep: Worker) -> None:
    at_sweep.open(sweep_arms="h2o")
    at_sweep.type(TEXT)
    turns = at_sweep.visit.turns
    turns.pause_in = turns.given + 4 * 5 + 2  # three layers and the losses take 5 turns a reading
    at_sweep.press()
    assert turns.pausing.wait(20)
    at = at_sweep.at.run()
    sound(at)
    assert not at.get("plotly_chart") and not at.button(key="sweep_stop").disabled
    at.button(key="sweep_stop").click().run()
    at_sweep.settle()
    assert "Stopped: what was finished is shown" in told(at, "info")
    done = at_sweep.result.points
    assert 2 <= len(done) < 1 + 2 * len(SHARES) and not at_sweep.result.whole
    assert len(figure(at, "sweep_lines").data) >= 2
    at_sweep.press()
    at_sweep.settle()
    assert (
        at_sweep.result.whole
        and at_sweep.result.points[: len(done)] == done
        and len(at_sweep.result.points) > len(done)
    )
    assert "Stopped" not in told(at, "info")


def test_stopped_before_the_first_point_nothing_is_shown(at_sweep: Worker) -> None:
    at_sweep.open(sweep_arms="h2o")
    at_sweep.type(TEXT)
    turns = at_sweep.visit.turns
    turns.pause_in = turns.given + 2
    at_sweep.press()
    assert turns.pausing.wait(20)
    at_sweep.at.run().button(key="sweep_stop").click().run()
    at = at_sweep.settle()
    assert "nothing is kept" in told(at, "info") and not at.get("plotly_chart")


def test_changed_settings_are_told_and_kept_results_come_back(at_sweep: Worker) -> None:
    at = swept(at_sweep).at
    first = at_sweep.result
    at.pills(key="sweep_arms").set_value(["window"]).run()
    assert "settings above have changed" in told(at, "warning")
    at_sweep.press()
    at_sweep.settle()
    assert not at.warning and at_sweep.result is not first
    at.pills(key="sweep_arms").set_value(["h2o"]).run()
    assert not at.warning and figure(at, "sweep_lines").data[0].name == "H2O"


def test_no_policy_chosen_leaves_the_control(at_sweep: Worker) -> None:
    at = swept(at_sweep).at
    at.pills(key="sweep_arms").set_value([]).run()
    at_sweep.press()
    at_sweep.settle()
    sound(at)
    assert [line.name for line in figure(at, "sweep_lines").data] == ["random", "full cache"]


@pytest.mark.parametrize(
    "text", ["ab", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "<b>x</b> $x$ <script>alert(1)</script>"]
)
def test_awkward_texts(at_sweep: Worker, text: str) -> None:
    at = swept(at_sweep, text, sweep_arms="window").at
    sound(at)
    if text == "ab":
        assert "second half" in told(at, "error")
    else:
        assert all(np.isfinite(numbers(line.y)).all() for line in figure(at, "sweep_lines").data)


def test_saved_python_gives_the_same(at_sweep: Worker) -> None:
    at = swept(at_sweep, sweep_arms="window").at
    found = at_sweep.result
    assert {"sweep_csv_points", "sweep_html"} <= {button.key for button in at.get("download_button")}
    *setup, last = as_python(found).split("\n")
    space: dict = {"tiny": tiny_llama()}
    exec("\n".join(setup).replace("kvviz.load('smollm2-135m', device='auto', dtype='auto')", "tiny"), space)
    frame: pd.DataFrame = eval(last, space)
    assert frame["perplexity"].tolist() == [point.perplexity for point in found.points]
    assert table(N_, found).shape == (3, 1 + len(SHARES))
