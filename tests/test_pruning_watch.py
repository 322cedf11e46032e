"""One policy, watched: frames and figures by hand, and the view in every state on tiny models."""

import base64
import re
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

import kvviz
from kvviz.analysis.evictions import Evictions, from_steps, managed
from kvviz.analysis.reasons import reasons
from kvviz.analysis.timeline import timeline
from kvviz.engine import reading
from kvviz.engine.evicting import EvictingCache
from kvviz.engine.stream import stream
from kvviz.figures.timeline import cache_against_full, token_timeline
from kvviz.geometry.layers import layer_shapes
from kvviz.geometry.memory import cache_bytes
from kvviz.locale import N_, translator
from kvviz.models.loading import LanguageModel
from kvviz.models.prompts import encode
from kvviz.policies import H2O, NEVER, Policy, Random, SinksWindow, SnapKV, Window
from kvviz.records import LEAVES, Evicted
from kvviz.ui.desk import Desk
from kvviz.ui.house import ModelKey
from kvviz.ui.pruning import watch_inputs, watch_run
from kvviz.ui.pruning.policy import policy_name
from kvviz.ui.pruning.watch_run import Wanted, WatchRun
from kvviz.ui.pruning.watch_save import as_html, as_python
from kvviz.ui.pruning.watch_status import nothing_evicted
from kvviz.ui.pruning.watch_why import sentences
from kvviz.ui.turns import Turns
from tests.test_attention_ui import figure, shares, texts
from tests.test_pages import (
    Visit,
    component,
    number,
    quick,  # noqa: F401 (fixtures of every page's tests)
    served_before,  # noqa: F401
    sound,
    told,
    visit,  # noqa: F401
)
from tests.tiny import FAMILIES, tiny_gemma3, tiny_llama

TEXT = "the cat sat on the mat and the dog"
HOSTILE = "<b>x</b> $y$ <script>alert(1)</script> 貓 <bos>"
NEW = 6


def gone(layer: int, *rows: tuple[int, int, int, float, float]) -> Evicted:
    """Evictions of one layer from rows of (after, head, position, score, cut)."""
    after, head, position, score, cut = (np.array(column) for column in zip(*rows, strict=True))
    return Evicted(layer, after, head, position, score.astype(np.float32), cut.astype(np.float32))


# --- Frames


@pytest.mark.parametrize(
    "policy", [H2O(budget=5), SinksWindow(budget=6, sinks=2), SnapKV(budget=5, window=2, kernel=3)]
)
def test_evictions_of_streamed_steps_are_what_the_cache_lost(policy, monkeypatch: pytest.MonkeyPatch) -> None:
    caches = []

    class Noted(EvictingCache):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)
            caches.append(self)

    monkeypatch.setattr(reading, "EvictingCache", Noted)
    lm = tiny_llama()
    evictions = None
    steps = []
    for step in stream(lm, TEXT, NEW, policy=policy):
        steps.append(step)
        evictions = from_steps(policy, steps, layer_shapes(lm.config))
        for layer in range(3):
            held = caches[0].layers[layer].positions
            assert evictions.tokens == step.seen
            for head in range(2):
                assert evictions.kept(layer, head, step.seen - 1).tolist() == held[head].tolist()
    assert evictions.count == sum(len(each.position) for step in steps for each in step.evicted) > 0


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "bloom"])
def test_the_layers_a_policy_acts_on_are_those_of_the_cache(name: str) -> None:
    lm = FAMILIES[name]()
    shapes = layer_shapes(lm.config)
    if not managed(shapes):
        with pytest.raises(kvviz.Refused):
            EvictingCache(lm, Window(budget=4), 9, 5)
        return
    assert list(managed(shapes)) == EvictingCache(lm, Window(budget=4), 9, 5).managed
    steps = list(stream(lm, TEXT, 2, policy=Window(budget=4)))
    held = steps[-1].layers[managed(shapes)[0]]
    evictions = from_steps(Window(budget=4), steps, shapes)
    assert held.stored == 4 and len(evictions.kept(held.layer, evictions.kv_heads - 1, steps[-1].seen - 1)) == 4


def test_reasons_by_hand() -> None:
    h2o = H2O(budget=4, recent_share=0.5)  # the newest two are protected
    rows = (4, 0, 1, 0.2, 0.3), (5, 0, 3, 0.4, 0.5), (4, 1, 0, 0.1, 0.1)
    found = reasons(Evictions(h2o, 7, (5,), 2, [gone(5, *rows)]), 5, 0)
    # after token 4 there are 0 1 2 3 4, of which 0 1 2 may go; after token 5 there are 0 2 3 4 5: 0 2 3
    assert found[["position", "evicted_after", "rank", "candidates"]].to_numpy().tolist() == [
        [1, 4, 1, 3],
        [3, 5, 1, 3],
    ]
    np.testing.assert_allclose(found[["score", "cut"]], [[0.2, 0.3], [0.4, 0.5]])

    cut_once = H2O(budget=3, evicts="decode", recent_share=0.0)
    rows = (5, 0, 4, 0.1, 0.9), (5, 0, 2, 0.2, 0.9), (5, 0, 0, 0.2, 0.9)
    found = reasons(Evictions(cut_once, 6, (0,), 1, [gone(0, *rows)]), 0, 0)
    assert found["position"].tolist() == [4, 0, 2], "of equal scores the older goes first"
    assert found["rank"].tolist() == [1, 2, 3] and found["candidates"].tolist() == [5, 5, 5]

    none = reasons(Evictions(h2o, 3, (0,), 1, []), 0, 0)
    assert none.empty and {"rank", "candidates"} <= set(none.columns)


def test_reasons_agree_with_the_run() -> None:
    lm, policy = tiny_llama(), H2O(budget=5)
    found = from_steps(policy, list(stream(lm, TEXT, NEW, policy=policy)), layer_shapes(lm.config))
    frame = reasons(found, 1, 1)
    assert len(frame) == found.tokens - 5
    assert (frame["rank"] == 1).all() and (frame["candidates"] == 6 - policy.recent).all()
    assert (frame["score"] <= frame["cut"]).all()


def test_timeline_by_hand() -> None:
    policy = H2O(budget=3, recent_share=0.34)  # the newest one is protected
    found = Evictions(policy, 5, (2,), 1, [gone(2, (3, 0, 1, 0.1, 0.2), (4, 0, 3, 0.1, 0.2))])
    life = timeline(found, 2, 0)
    assert life.cell == (1, 1) and (life.tokens, life.steps) == (range(5), range(5))
    assert life.cells.tolist() == [
        [2, 3, 3, 3, 3],
        [0, 2, 3, LEAVES, 4],
        [0, 0, 2, 3, 3],
        [0, 0, 0, 2, LEAVES],
        [0, 0, 0, 0, 2],
    ]
    part = timeline(found, 2, 0, range(1, 3))
    assert (part.tokens, part.steps) == (range(1, 3), range(1, 5))
    assert part.cells.tolist() == [[2, 3, LEAVES, 4], [0, 2, 3, 3]]
    pooled = timeline(found, 2, 0, most=2)  # 3 recent and 3 heavy; 4 heavy and 2 gone; none yet; 2 recent and 1 gone
    assert pooled.cell == (3, 3) and pooled.cells.tolist() == [[2, 3], [0, 2]]


def test_what_comes_after_a_prompt_that_alone_is_cut_is_recent() -> None:
    policy = SnapKV(budget=3, window=1, kernel=1)
    found = Evictions(policy, 7, (0,), 1, [gone(0, (3, 0, 1, 0.1, 0.2))])
    assert found.roles(0, 0)[:, 6].tolist() == [3, 4, 3, 2, 2, 2, 2]
    assert found.roles(0, 0, range(2, 4)).tolist() == found.roles(0, 0)[2:4].tolist()


# --- Figures


def test_the_timeline_shows_every_cell_once_and_escapes_labels() -> None:
    policy = SinksWindow(budget=3, sinks=1)
    found = Evictions(policy, 5, (0,), 1, [gone(0, (3, 0, 1, np.nan, np.nan), (4, 0, 2, np.nan, np.nan))])
    shown = token_timeline(timeline(found, 0, 0), ["<b>a</b>", "1E1", "1E1", "<bos>", "貓"], prompt=3, at=2, selected=1)
    maps = {trace.name: trace.z for trace in shown.data if trace.type == "heatmap"}
    assert set(maps) == {"sink", "recent", "goes now", "evicted"}
    places = np.nansum(list(maps.values()), axis=0)
    assert places.tolist() == np.triu(np.ones((5, 5))).tolist(), "one colour for each place from a token's own step on"
    assert np.argwhere(maps["goes now"] == 1).tolist() == [[1, 3], [2, 4]]
    assert np.argwhere(maps["evicted"] == 1).tolist() == [[1, 4]]
    assert shown.layout.yaxis.ticktext[0] == "0 &lt;b&gt;a&lt;/b&gt;" and shown.layout.yaxis.type == "linear"
    legend = [trace.name for trace in shown.data if trace.type == "scatter" and trace.showlegend]
    assert sorted(legend) == sorted(maps)
    assert {(shape.x0, shape.x1) for shape in shown.layout.shapes} == {(2.5, 2.5), (2, 2), (-0.5, 4.5)}


def test_the_cache_stands_beside_a_full_one() -> None:
    steps = pd.DataFrame(
        {"seen_tokens": [4, 5], "stored_tokens": [3, 3], "cache_bytes": [2**20, 2**20], "peak_bytes": [2**21, 2**20]}
    )
    full = pd.DataFrame({"seen_tokens": [0, 5], "bytes": [0, 2**22]})
    formula, measured, peak = cache_against_full(steps, full).data
    assert formula.y.tolist() == [0, 4] and formula.line.dash == "dash"
    assert measured.y.tolist() == [1, 1] and measured.customdata.tolist() == [3, 3]
    assert peak.x.tolist() == [4, 5] and peak.y.tolist() == [2, 1]


# --- Words


def test_a_policy_is_named_by_what_differs() -> None:
    assert policy_name(H2O(budget=16), N_) == "H2O (16 tokens)"
    assert policy_name(H2O(budget=0.2, pooling="max"), N_) == "H2O (20% · maximum of the group)"
    changed = SinksWindow(budget=64, sinks=8, positions="original")
    assert policy_name(changed, N_) == "sinks + window (64 tokens · original positions · Sinks 8)"
    assert policy_name(kvviz.policies.Full(), N_) == "full cache"


def test_nothing_evicted_is_no_praise() -> None:
    assert nothing_evicted(N_, H2O(budget=9), 5, 3).startswith("0 tokens evicted: the text is shorter than the budget")
    assert "just fills the budget of 5 tokens" in nothing_evicted(N_, H2O(budget=5), 5, 3)
    assert "the prompt is shorter" in nothing_evicted(N_, SnapKV(budget=4), 9, 3)


# --- The view


class Watcher:
    """A visitor of the view."""

    def __init__(self, visit: Visit) -> None:  # noqa: F811
        self.visit, self.desk = visit, Desk()

    @property
    def at(self) -> AppTest:
        return self.visit.at

    @property
    def run(self) -> WatchRun:
        return self.desk.run

    def open(self, text: str = TEXT, budget: int = 6, policy: str = "h2o") -> AppTest:
        self.visit.open("pruning", view="watch")
        self.at.text_area(key="watch_prompt").set_value(text)
        self.at.slider(key="watch_new").set_value(NEW)
        self.at.selectbox(key="watch_policy").set_value(policy)
        self.at.segmented_control(key="watch_unit").set_value("tokens").run()
        self.at.number_input(key="watch_tokens").set_value(budget)
        return self.at.run()

    def press(self, key: str) -> AppTest:
        return self.at.button(key=key).click().run()

    def settle(self) -> AppTest:
        if self.run is not None:
            self.run.job.join(20)
            assert not self.run.job.running
        return self.at.run()

    def ran(self, *args: object, **options: object) -> AppTest:
        """The view after a whole run."""
        self.open(*args, **options)
        self.press("watch_run")
        return self.settle()


@pytest.fixture
def watcher(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watcher]:  # noqa: F811
    watcher = Watcher(visit)
    for module in (watch_inputs, watch_run):
        monkeypatch.setattr(module, "desk", lambda: watcher.desk)
    monkeypatch.setattr(watch_run, "shared_turns", lambda: visit.turns)
    yield watcher
    visit.turns.go_on.set()
    if watcher.run is not None:
        watcher.run.job.cancel()


def test_before_the_first_run(watcher: Watcher) -> None:
    at = watcher.open()
    sound(at)
    assert "Press Run" in told(at, "caption") and "at most 6 stay per layer and KV head" in told(at, "caption")
    assert [one.value for one in at.subheader] == ["Which tokens does a policy throw away, when and why?"]
    assert not at.button(key="watch_run").disabled and at.button(key="watch_stop").disabled
    assert not at.get("plotly_chart") and not at.metric


def test_while_the_model_is_loading_and_when_it_cannot_be(watcher: Watcher) -> None:
    place = watcher.visit
    place.errors = [kvviz.Refused("This model does not fit.")]
    place.may_load.clear()
    at = place.open("pruning", loaded=False, view="watch")
    sound(at)
    assert at.button(key="watch_run").disabled and at.selectbox(key="watch_policy").value == "h2o"
    place.may_load.set()
    at = place.settle()
    sound(at)
    assert "This model does not fit." in told(at, "error") and at.button(key="watch_run").disabled


def test_while_it_runs_and_after_stop(watcher: Watcher) -> None:
    watcher.open()
    turns = watcher.visit.turns
    turns.pause_in = turns.given + 4  # making the cache, the prompt, one token
    at = watcher.press("watch_run")
    assert turns.pausing.wait(60)
    at = watcher.at.run()
    sound(at)
    steps = list(watcher.run.steps)
    assert len(steps) == 2
    (progress,) = at.get("progress")
    assert progress.proto.text == f"Decode: token 2 of {NEW}"
    strip, grid = component(at, "watch_live_strip"), component(at, "watch_grid")
    assert strip["live"] and grid["live"] and grid["seen"] == steps[-1].seen
    assert strip["ids"] == [*watcher.run.prompt.ids, *(step.token_id for step in steps)]
    assert not at.button(key="watch_stop").disabled and not at.get("plotly_chart")
    at = watcher.press("watch_stop")
    at = watcher.settle()
    sound(at)
    assert "Stopped after" in told(at, "info") and at.get("plotly_chart")
    assert len(watcher.run.steps) < NEW


def test_a_whole_run_shows_what_the_engine_did(watcher: Watcher) -> None:
    at = watcher.ran()
    sound(at)
    lm, policy = tiny_llama(), H2O(budget=6)
    steps = list(stream(lm, TEXT, NEW, policy=policy))
    seen, found = steps[-1].seen, from_steps(policy, steps, layer_shapes(lm.config))
    assert number(at, "Tokens seen") == str(seen)
    assert f"{steps[-1].cache_bytes:,} bytes" in told(at, "caption") and "6 stored" in told(at, "caption")
    full = cache_bytes(layer_shapes(lm.config), 4, seen)
    assert f"{100 * steps[-1].cache_bytes / full:.0f} % of it is held" in told(at, "caption")
    assert f"{seen - 6} tokens evicted in every layer and KV head, the first when token 6 had been read" in told(at)

    strip = component(at, "watch_strip")
    assert strip["ids"] == [*watcher.run.prompt.ids, *(step.token_id for step in steps)]
    share = found.kept_share()
    np.testing.assert_allclose(shares(at, "watch_strip"), np.rint([*share * 255, 0]), atol=0.51)
    grid = component(at, "watch_grid")
    cells = np.frombuffer(base64.b64decode(grid["panels"][0]["cells"]), dtype=np.uint8).reshape(3, seen)
    held = (found.gone == NEVER).sum(axis=1)
    assert ((cells > 0) == (held > 0)).all() and (cells == np.where(held, 2 + np.rint(held / 2 * 253), 0)).all()

    lost = reasons(found, 1, 0)
    token = lost["position"].iloc[0]
    assert at.number_input(key="watch_token").value == token
    why = texts(at)
    assert f"Token {token} “" in why and "left the cache of layer 1, KV head 0 when token 6 “" in why
    assert f"among the {lost['candidates'].iloc[0]} that could go" in why and f"{lost['score'].iloc[0]:.4g}" in why
    goes = next(trace for trace in figure(at, "watch_timeline").data if trace.name == "goes now")
    assert goes.type == "heatmap"
    assert not at.error and not at.warning


def test_any_step_head_and_token_again(watcher: Watcher) -> None:
    watcher.ran()
    run = watcher.run
    at = watcher.at.slider(key="watch_step").set_value(1).run()
    sound(at)
    now = run.steps[1]
    assert number(at, "Tokens seen") == str(now.seen) and component(at, "watch_grid")["seen"] == now.seen
    np.testing.assert_allclose(shares(at, "watch_strip")[: now.seen], np.rint(run.held_share(now) * 255), atol=0.51)
    at.selectbox(key="watch_head").set_value(1)
    at.select_slider(key="watch_layer").set_value(2)
    at = at.number_input(key="watch_token").set_value(now.seen + 1).run()
    sound(at)
    assert "is read only after the step that is shown" in texts(at) and "Layer 2, KV head 1" in told(at, "caption")
    at = at.number_input(key="watch_token").set_value(now.seen - 1).run()
    assert "still in the cache of layer 2, KV head 1.\nIt stays because it is recent." in texts(at)
    at = at.number_input(key="watch_token").set_value(len(run.prompt.ids) + NEW - 1).run()
    sound(at)
    assert "in no cache" in texts(at)


def test_changed_settings_mark_what_is_shown(watcher: Watcher) -> None:
    watcher.ran()
    at = watcher.at.number_input(key="watch_tokens").set_value(7).run()
    assert "belongs to the earlier ones" in told(at, "warning") and at.metric
    at = watcher.at.number_input(key="watch_tokens").set_value(6).run()
    assert not at.warning


def test_a_text_within_the_budget_evicts_nothing(watcher: Watcher) -> None:
    at = watcher.ran(budget=500)
    sound(at)
    assert "0 tokens evicted: the text is shorter than the budget" in told(at, "info")
    assert "There is still room for all." in texts(at)
    assert {trace.name for trace in figure(at, "watch_timeline").data if trace.type == "heatmap"} == {"recent"}


def test_budgets_and_prompts_that_cannot_be_are_sentences(watcher: Watcher) -> None:
    at = watcher.open(budget=0)
    sound(at)
    assert "at least 1 token" in told(at, "error")
    at = watcher.press("watch_run")
    assert watcher.run is None
    at = watcher.open(budget=3, policy="sinks_window")
    assert "no room for 4 first tokens and the newest one" in told(at, "error")
    at = watcher.open(text="")
    sound(at)
    assert at.error and watcher.press("watch_run") and watcher.run is None


def test_a_policy_that_the_model_cannot_have_is_a_sentence(watcher: Watcher) -> None:
    at = watcher.visit.open("pruning", loaded=False, model="other")
    at.text_input(key="other_model").set_value("tiny-gpt2").run()
    watcher.visit.settle()
    at = watcher.at.selectbox(key="watch_policy").set_value("sinks_window").run()  # renumbers what is kept
    watcher.press("watch_run")
    at = watcher.settle()
    sound(at)
    assert "positions" in told(at, "error") and not at.metric


def test_one_new_token_has_no_slider(watcher: Watcher) -> None:
    watcher.open()
    watcher.at.slider(key="watch_new").set_value(1).run()
    watcher.press("watch_run")
    at = watcher.settle()
    sound(at)
    assert not [one for one in at.slider if one.key == "watch_step"] and number(at, "Tokens seen")


@pytest.mark.parametrize("policy", ["window", "scissorhands", "tova", "snapkv", "knorm", "random"])
def test_every_policy_can_be_watched(watcher: Watcher, policy: str) -> None:
    at = watcher.ran(policy=policy, budget=11 if policy == "scissorhands" else 6)
    sound(at)
    assert not at.error and figure(at, "watch_timeline") and "evicted in every layer" in told(at)


def test_hostile_text_is_shown_as_it_is(watcher: Watcher) -> None:
    at = watcher.ran(text=HOSTILE)
    sound(at)
    labels = watcher.run.text(99).labels
    assert component(at, "watch_strip")["labels"] == labels
    ticks = figure(at, "watch_timeline").layout.yaxis.ticktext
    assert not any("<" in tick for tick in ticks) and any("&lt;" in tick for tick in ticks)


def test_the_view_in_chinese(watcher: Watcher) -> None:
    watcher.visit.open("pruning", lang="zh-TW")
    sound(watcher.press("watch_run"))
    at = watcher.settle()
    sound(at)
    assert component(at, "watch_strip")["labels"]


# --- What is taken away


def made(policy: Policy, text: str = TEXT, model: Callable[[], LanguageModel] = tiny_llama) -> WatchRun:
    """A run that has ended."""
    lm = model()
    wanted = Wanted(ModelKey("tiny", "cpu", "float32"), text, policy, max_new_tokens=NEW)
    run = WatchRun(wanted, lm, encode(lm, text), Turns())
    run.job.join(20)
    assert run.job.error is None and len(run.steps) == NEW
    return run


def test_python_repeats_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = made(H2O(budget=6))
    monkeypatch.setattr(kvviz, "load", lambda *args, **options: tiny_llama(), raising=False)
    names: dict = {}
    exec(as_python(run, 1, 0), names)
    assert [step.token_id for step in names["steps"]] == [step.token_id for step in run.steps]
    pd.testing.assert_frame_equal(names["evictions"].frame(), run.evictions().frame())


def test_html_holds_the_pictures_and_escapes_the_text() -> None:
    run = made(Random(budget=6), HOSTILE)
    written = as_html(translator("en"), "light", "en", run, 1, 0)
    assert written.count("plotly-graph-div") == 2 and "kvviz.policies.Random(budget=6)" in written
    assert "<script>alert(1)" not in written and "random (6 tokens)" in written


def test_layers_that_slide_are_left_alone_and_shown() -> None:
    run = made(Window(budget=4), model=tiny_gemma3)
    now = run.steps[-1]
    holding = run.holding(now)
    for layer in now.layers:
        expected = 4 if layer.layer in run.layers else layer.stored
        assert (holding[layer.layer] > 0).sum() == expected == layer.stored
    assert 0 < len(run.layers) < len(now.layers)


def test_sentences_of_a_fixed_rule_speak_of_age() -> None:
    run = made(Window(budget=4))
    why = sentences(N_, run, 1, 1, 2, run.steps[-1].seen - 1)
    told = r"Token 2 “.*” · left the cache of layer 1, KV head 1 when token 6 “.*” had been read\."
    assert re.fullmatch(told, why[0])
    assert why[1] == "The rule looks at age alone: it was the oldest of the 4 that could go."
    assert why[2] == "All 6 KV heads of all layers let go of it at the same time."
