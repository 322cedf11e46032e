"""Figures of plans show the numbers of the plans, on both axes, with cards as lines."""

import pandas as pd
import pytest

import kvviz
from kvviz.figures import plan as figures
from kvviz.geometry.plan import Plan

GIB = 1024**3


def planned(name: str) -> Plan:
    return kvviz.plan(name, check=False)


@pytest.mark.parametrize("log", [True, False])
def test_one_line_a_model_and_one_a_card(log: bool) -> None:
    names = ["llama-3-8b", "gemma-3-27b", "deepseek-v3", "gpt2", "falcon-7b", "qwen3-8b", "gpt-oss-20b"]
    frame = pd.concat([planned(name).curve().assign(model=name) for name in names])
    cards = pd.DataFrame({"gpu": ["A <b>card</b>", "too small"], "room_bytes": [80 * GIB, -5]})
    figure = figures.context_curves(frame, cards, log=log)
    lines = {trace.name: trace for trace in figure.data}
    assert list(lines)[:-1] == names
    for name in names:
        assert lines[name].y[-1] * GIB == pytest.approx(planned(name).at(tokens=int(lines[name].x[-1])).total_bytes)
    assert len({(line.line.color, line.line.dash) for line in figure.data}) == len(names) + 1
    card = figure.data[-1]
    assert set(card.y) == {80} and card.text[0] == "A &lt;b&gt;card&lt;/b&gt;"
    assert figure.layout.yaxis.type == figure.layout.xaxis.type == ("log" if log else "linear")


def test_kinds_stack_up_to_the_total() -> None:
    plan = planned("gemma-3-27b")
    figure = figures.kinds_stacked(plan.kinds_curve([1000, 50_000]))
    assert [trace.name for trace in figure.data] == ["sliding window", "full attention"]
    assert sum(trace.y[-1] for trace in figure.data) * GIB == pytest.approx(plan.at(tokens=50_000).total_bytes)


def test_a_bar_a_layer() -> None:
    plan = planned("jamba-v0.1")
    figure = figures.layer_bars(plan.layers)
    assert sum(sum(trace.y) for trace in figure.data) * 1024**2 == pytest.approx(plan.total_bytes)
    assert sorted(layer for trace in figure.data for layer in trace.x) == list(range(32))


def test_three_counts_and_both_themes() -> None:
    curve = planned("gpt-oss-20b").curve()
    for theme in ("light", "dark"):
        figure = figures.three_counts(curve, theme=theme)
        assert [trace.y[-1] * GIB for trace in figure.data] == pytest.approx(
            [curve[name].iloc[-1] for name in ("least_bytes", "total_bytes", "vllm_bytes")]
        )


def test_words_go_through_the_translator() -> None:
    asked = []
    curve = planned("gpt2").curve()
    figures.three_counts(curve, t=lambda text: asked.append(text) or text)
    assert {"tokens of context", "cache", "as vLLM reserves it"} <= set(asked)
    figures.three_counts(curve, log=False, t=lambda text: asked.append(text) or text)
    assert "cache (GiB)" in asked
