"""Frames of a run, and the arithmetic of computing with and without a cache."""

import pytest

from kvviz.analysis.formula import arithmetic_frame, predicted_frame
from kvviz.analysis.headroom import capacity_frame, length_frame, measured_itemsize
from kvviz.analysis.recompute import (
    comparison_frame,
    computed_with_cache,
    computed_without_cache,
    first_difference,
    speed_up,
)
from kvviz.analysis.runs import kinds_frame, layers_frame, speed, steps_frame
from kvviz.engine.stream import stream
from kvviz.geometry.layers import layer_shapes
from tests.tiny import FAMILIES

IDS = [11, 40, 23, 99, 57, 31]


@pytest.fixture(scope="module")
def run():
    lm = FAMILIES["gemma3"]()
    return lm, list(stream(lm, IDS, 12))


def test_counts_of_computed_tokens():
    assert (computed_with_cache(1, 100), computed_without_cache(1, 100)) == (100, 5_050)
    assert (computed_with_cache(1, 1000), computed_without_cache(1, 1000)) == (1_000, 500_500)
    assert computed_without_cache(7, 3) == 7 + 8 + 9
    assert computed_with_cache(7, 3) == 7 + 1 + 1
    assert computed_with_cache(7, 0) == computed_without_cache(7, 0) == 0


def test_counts_are_those_of_real_runs(run):
    lm, cached = run
    frame = comparison_frame(cached, list(stream(lm, IDS, 12, use_cache=False)))
    assert frame["with_cache_computed"].iloc[-1] == computed_with_cache(6, 12)
    assert frame["without_cache_computed"].iloc[-1] == computed_without_cache(6, 12)
    assert first_difference(frame) is None
    total = frame[["with_cache_milliseconds", "without_cache_milliseconds"]].sum()
    assert speed_up(frame) == pytest.approx(total.iloc[1] / total.iloc[0])


def test_the_first_differing_token_is_found(run):
    _, cached = run
    frame = comparison_frame(cached, cached)
    frame.loc[4:, "same_token"] = False
    assert first_difference(frame) == 4


def test_frames_have_a_row_for_each_step_and_layer(run):
    _, steps = run
    assert len(steps_frame(steps)) == 12 and len(layers_frame(steps)) == 12 * 6
    by_layer = layers_frame(steps).groupby("step")["bytes"].sum()
    by_kind = kinds_frame(steps).groupby("step")["bytes"].sum()
    assert by_layer.tolist() == by_kind.tolist() == steps_frame(steps)["cache_bytes"].tolist()
    assert kinds_frame(steps).query("step == 11")[["kind", "layers", "stored_tokens"]].values.tolist() == [
        ["sliding", 5, 7],
        ["full", 1, 17],
    ]


def test_the_formulas_line_runs_through_the_measured_points(run):
    lm, steps = run
    predicted = predicted_frame(layer_shapes(lm.config), 4, steps[-1].seen).set_index(["seen_tokens", "kind"])["bytes"]
    measured = kinds_frame(steps).set_index(["seen_tokens", "kind"])["bytes"]
    assert len(measured) == 24
    assert (predicted.loc[measured.index] == measured).all()


def test_a_long_line_keeps_the_corner_of_the_window():
    shapes = layer_shapes(FAMILIES["gemma3"]().config)
    predicted = predicted_frame(shapes, 4, 100_000)
    assert 7 in predicted["seen_tokens"].values and len(predicted) < 1000


def test_the_arithmetic_spells_out_the_bytes(run):
    lm, _ = run
    rows = arithmetic_frame(layer_shapes(lm.config), 4)
    assert rows["bytes_per_token"].tolist() == [5 * 1 * (16 + 16) * 4, 1 * 1 * (16 + 16) * 4]
    assert rows["window"].tolist()[0] == 8


def test_headroom_continues_what_was_measured(run):
    lm, steps = run
    shapes = layer_shapes(lm.config)
    assert measured_itemsize(steps[-1], shapes) == 4
    assert length_frame(shapes, 4, [1000])["cache_bytes"].item() == 1000 * 128 + 5 * 7 * 128
    fits = capacity_frame(shapes, 4, 10_000, {"card": 100_000})
    assert fits["tokens_alone"].item() == (100_000 - 5 * 7 * 128) // 128
    assert fits["tokens_beside_weights"].item() == (90_000 - 5 * 7 * 128) // 128


def test_speed_needs_a_decode_step(run):
    _, steps = run
    assert speed(steps[:1])["milliseconds_per_token"] is None
    assert speed(steps)["tokens_per_second"] == pytest.approx(11 / sum(step.seconds for step in steps[1:]))
    assert speed([])["prefill_seconds"] is None
