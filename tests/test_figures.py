"""Figures of real runs of tiny models: what is drawn where, in whose words and colours."""

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from kvviz import figures
from kvviz.analysis.formula import predicted_frame
from kvviz.analysis.recompute import comparison_frame
from kvviz.analysis.runs import kinds_frame, steps_frame
from kvviz.engine.stream import stream
from kvviz.figures.theme import token_ticks
from kvviz.geometry.layers import layer_shapes
from kvviz.palette import colour
from kvviz.records import Step
from tests.tiny import FAMILIES, tiny_gemma3, tiny_llama

TEXT = "the cat and the dog sat on the mat"
MIB = 1024**2
THEMES = ("light", "dark")


def translated(message: str) -> str:
    """A language in which everything is told from English, placeholders kept."""
    return f"‹{message}›"


@cache
def steps_of(family: str) -> list[Step]:
    """30 tokens written by a tiny model."""
    return list(stream(FAMILIES[family](), TEXT, 30))


def growth(family: str, t: Callable[[str], str] = str, theme: str = "light") -> go.Figure:
    lm, steps = FAMILIES[family](), steps_of(family)
    predicted = predicted_frame(layer_shapes(lm.config), lm.dtype.itemsize, steps[-1].seen)
    return figures.cache_growth(kinds_frame(steps), predicted, t, theme)


@pytest.fixture(scope="module")
def run() -> list[Step]:
    return list(stream(tiny_llama(), TEXT, 20))


@pytest.fixture(scope="module")
def comparison(run: list[Step]) -> pd.DataFrame:
    return comparison_frame(run, list(stream(tiny_llama(), TEXT, 20, use_cache=False)))


@pytest.fixture(params=["cache_growth", "token_times", "with_and_without"])
def make(request: pytest.FixtureRequest, run: list[Step], comparison: pd.DataFrame) -> Callable[..., go.Figure]:
    """Each figure as a function of translator and theme."""
    return {
        "cache_growth": lambda t=str, theme="light": growth("gemma3", t, theme),
        "token_times": lambda t=str, theme="light": figures.token_times(steps_frame(run), t, theme),
        "with_and_without": lambda t=str, theme="light": figures.with_and_without(comparison, t, theme),
    }[request.param]


def test_axes_are_named_with_their_units(make: Callable[..., go.Figure]) -> None:
    figure = make()
    assert "tokens" in figure.layout.xaxis.title.text
    assert re.search(r"\(MiB\)|milliseconds", figure.layout.yaxis.title.text)


def test_axes_are_numbers_and_never_categories(make: Callable[..., go.Figure]) -> None:
    for trace in make().data:
        assert np.issubdtype(np.asarray(trace.x).dtype, np.number)
        assert np.issubdtype(np.asarray(trace.y).dtype, np.number)


def test_every_word_is_translated(make: Callable[..., go.Figure]) -> None:
    figure = make(translated)
    names = [trace.name for trace in figure.data]
    titles = [figure.layout.xaxis.title.text, figure.layout.yaxis.title.text]
    hovers = [trace.hovertemplate.removesuffix("<extra></extra>") for trace in figure.data if trace.hovertemplate]
    assert names and hovers
    for text in [*names, *titles, *hovers]:
        assert text.startswith("‹") and text.endswith("›"), text


def test_every_trace_has_a_name_of_its_own_and_a_hover_or_none(make: Callable[..., go.Figure]) -> None:
    figure = make()
    assert len({trace.name for trace in figure.data}) == len(figure.data) > 1
    for trace in figure.data:
        assert trace.hoverinfo == "skip" or trace.hovertemplate.endswith("<extra></extra>")
        assert "{" not in re.sub(r"%\{[^{}]+\}", "", trace.hovertemplate or ""), "a placeholder was not filled"


@pytest.mark.parametrize("theme", THEMES)
def test_both_themes_have_their_own_text_and_ink(make: Callable[..., go.Figure], theme: str) -> None:
    ours, other = make(theme=theme), make(theme=THEMES[theme == "light"])
    assert ours.layout.template.layout.font.color != other.layout.template.layout.font.color
    assert ours.layout.template.layout.paper_bgcolor == "rgba(0,0,0,0)"
    inks = [[trace.line.color or trace.marker.color for trace in figure.data] for figure in (ours, other)]
    assert all(inks[0]) and not set(inks[0]) & set(inks[1])


@pytest.mark.parametrize("family", list(FAMILIES))
def test_measured_points_lie_on_the_line_of_the_formula(family: str) -> None:
    lines = {trace.name: trace for trace in growth(family).data}
    measured = {name.removesuffix(": measured"): lines[name] for name in lines if name.endswith(": measured")}
    predicted = {name.removesuffix(": formula"): lines[name] for name in lines if name.endswith(": formula")}
    assert predicted and predicted.keys() <= measured.keys()
    for kind, line in predicted.items():
        points = measured[kind]
        assert len(points.x) > 5
        assert np.interp(points.x, line.x, line.y) == pytest.approx(np.asarray(points.y, dtype=float), rel=1e-9)
        assert line.line.dash == "dash" and points.mode == "markers"
        assert line.line.color == points.marker.color


@pytest.mark.parametrize("family", list(FAMILIES))
def test_what_is_drawn_is_what_the_tensors_hold(family: str) -> None:
    steps = steps_of(family)
    drawn = sum(np.asarray(trace.y)[-1] for trace in growth(family).data if trace.name.endswith(": measured"))
    assert drawn * MIB == pytest.approx(steps[-1].cache_bytes)


def test_a_state_of_fixed_size_is_a_level_line() -> None:
    traces = {trace.name: trace for trace in growth("qwen3_next").data}
    formula, measured = traces["fixed state, no K and V: formula"], traces["fixed state, no K and V: measured"]
    assert set(formula.y[1:]) == set(measured.y) and len(set(measured.y)) == 1


def test_sliding_layers_go_flat_at_the_window_while_full_ones_go_on() -> None:
    lm = tiny_gemma3()  # five sliding layers, window 8, one full
    traces = {trace.name: trace for trace in growth("gemma3").data}
    per_token = 2 * lm.config.head_dim * lm.dtype.itemsize
    sliding = traces["sliding window: measured"]
    assert set(np.round(np.asarray(sliding.y) * MIB)) == {5 * 7 * per_token}
    full = traces["full attention: measured"]
    assert np.asarray(full.y) * MIB == pytest.approx(np.asarray(full.x) * per_token)
    bend = traces["sliding window: formula"]
    assert (np.asarray(bend.y)[np.asarray(bend.x) >= 7] * MIB).max() == pytest.approx(5 * 7 * per_token)


def test_a_long_run_keeps_its_first_and_last_point() -> None:
    lm = tiny_llama()
    steps = list(stream(lm, TEXT, 200))
    predicted = predicted_frame(layer_shapes(lm.config), 4, steps[-1].seen)
    figure = figures.cache_growth(kinds_frame(steps), predicted)
    x = figure.data[1].x
    assert (x[0], x[-1]) == (steps[0].seen, steps[-1].seen)
    assert len(x) < len(steps) / 3 and len(set(x)) == len(x)


def test_times_are_those_of_the_steps(run: list[Step]) -> None:
    prefill, decode = figures.token_times(steps_frame(run)).data
    count = len(run[0].fed)
    assert list(prefill.x) == [0, count]
    assert prefill.y == pytest.approx([run[0].seconds * 1000 / count] * 2)
    assert list(decode.x) == [step.seen for step in run[1:]]
    assert decode.y == pytest.approx([step.seconds * 1000 for step in run[1:]])
    assert prefill.line.color == colour("prefill", "light") != decode.line.color == colour("decode", "light")
    assert f"{count} tokens, computed together" in prefill.hovertemplate


def test_times_of_a_run_of_one_step(run: list[Step]) -> None:
    prefill, decode = figures.token_times(steps_frame(run[:1])).data
    assert len(prefill.x) == 2 and len(decode.x) == 0


def test_with_and_without_are_told_apart_without_colour(comparison: pd.DataFrame) -> None:
    cached, anew = figures.with_and_without(comparison).data
    assert (cached.name, anew.name) == ("with cache", "without cache")
    assert cached.line.dash != anew.line.dash
    assert list(cached.x) == list(anew.x) == list(comparison["text_tokens"])
    assert cached.y == pytest.approx(comparison["with_cache_milliseconds"].to_numpy())
    assert anew.y == pytest.approx(comparison["without_cache_milliseconds"].to_numpy())


def test_tokens_on_an_axis_stay_numbers_in_order_and_as_written() -> None:
    labels = ["the", "the", "1E1", "<s>", "<b>x</b>", "a&b", "·", ""]
    figure = go.Figure(go.Scatter(x=list(range(8)), y=[0] * 8)).update_xaxes(**token_ticks(labels, start=3))
    axis = figure.layout.xaxis
    assert axis.type == "linear"
    assert list(axis.tickvals) == list(range(3, 11))
    assert list(axis.ticktext) == ["the", "the", "1E1", "&lt;s&gt;", "&lt;b&gt;x&lt;/b&gt;", "a&amp;b", "·", ""]


def test_many_tokens_are_thinned_evenly() -> None:
    ticks = token_ticks([str(n) for n in range(1000)], most=40)
    assert len(ticks["tickvals"]) <= 40
    assert len(set(np.diff(ticks["tickvals"]))) == 1
    assert ticks["ticktext"] == [str(n) for n in ticks["tickvals"]]
