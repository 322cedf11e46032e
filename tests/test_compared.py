"""Frames and figures of policies side by side and of the budget sweep, with numbers worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from kvviz.analysis.compared import agreement_frame, first_difference, loss_change_frame, lost_frame
from kvviz.analysis.evictions import Evictions
from kvviz.analysis.losses import Losses
from kvviz.figures.policies import agreement_matrix, look, loss_beyond_full, lost_by_layer
from kvviz.figures.sweep import perplexity_by_budget
from kvviz.policies import REGISTRY, Window
from kvviz.records import Evicted
from kvviz.ui.pruning.side_arms import ARMS

NAMES = {"window": "window", "h2o": "H2O", "random": "random"}


def losses(*nll: float) -> Losses:
    scores = np.array(nll, dtype=np.float32)
    return Losses("p", scores, scores, np.arange(1, len(nll) + 1), 1, 1, 0, 0)


def evictions(tokens: int, *gone: tuple[int, int]) -> Evictions:
    """One layer (number 2) with one head; `gone` are (after, position)."""
    after, position = (np.array(column) for column in zip(*gone, strict=True)) if gone else (np.zeros(0, int),) * 2
    nothing = np.zeros(len(after), dtype=np.float32)
    each = Evicted(2, after, np.zeros(len(after), dtype=int), position, nothing, nothing)
    return Evictions(Window(budget=2), tokens, (2,), 1, (each,) if gone else ())


def test_running_means_end_at_their_token() -> None:
    frame = loss_change_frame(losses(1, 1, 1, 1), {"window": losses(1, 3, 2, 5), "h2o": losses(0, 1, 1, 1)}, 2)
    assert frame["arm"].tolist() == ["window"] * 3 + ["h2o"] * 3
    assert frame["position"].tolist() == [2, 3, 4] * 2, "the first token with a mean of two is token 2"
    np.testing.assert_allclose(frame["change_nats"], [1, 1.5, 2.5, -0.5, 0, 0])


def test_single_tokens_and_texts_shorter_than_the_mean() -> None:
    each = loss_change_frame(losses(1, 1), {"window": losses(2, 4)}, 1)
    assert each["position"].tolist() == [1, 2] and each["change_nats"].tolist() == [1, 3]
    short = loss_change_frame(losses(1, 1), {"window": losses(2, 4)}, 32)
    assert short["position"].tolist() == [2] and short["change_nats"].tolist() == [2]


def test_attention_lost_is_averaged_behind_the_first_eviction() -> None:
    shares = {
        "window": np.array([[0.9, 0.9, 0.2, 0.4]], dtype=np.float32),
        "h2o": np.zeros((1, 4), dtype=np.float32),
        "random": np.full((1, 4), 0.5, dtype=np.float32),
    }
    gone = {"window": evictions(4, (1, 0)), "h2o": evictions(4), "random": evictions(4, (3, 0))}
    frame = lost_frame(shares, gone)
    assert frame["arm"].tolist() == ["window"], "h2o dropped nothing, random only after the last query"
    assert frame.iloc[0].to_dict() == {"arm": "window", "layer": 2, "lost_share": pytest.approx(0.3), "queries": 2}


def test_agreement_by_hand() -> None:
    # of 4 tokens window keeps {2, 3}, h2o {0, 3}, random {1, 2, 3}
    sets = {
        "window": evictions(4, (2, 0), (3, 1)),
        "h2o": evictions(4, (2, 1), (3, 2)),
        "random": evictions(4, (2, 0)),
    }
    frame = agreement_frame(sets).set_index(["arm", "other"])["jaccard"]
    assert frame["window", "window"] == 1
    assert frame["window", "h2o"] == frame["h2o", "window"] == pytest.approx(1 / 3)
    assert frame["window", "random"] == pytest.approx(2 / 3) and frame["h2o", "random"] == pytest.approx(1 / 4)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [((1, 2, 3), (1, 2, 3), None), ((1, 2, 3), (1, 5, 3), 1), ((1, 2), (1, 2, 3), 2), ((1, 2), (), 0), ((), (), None)],
)
def test_the_first_difference(one: tuple[int, ...], other: tuple[int, ...], expected: int | None) -> None:
    assert first_difference(one, other) == expected


def test_lines_of_losses_and_their_first_evictions() -> None:
    frame = loss_change_frame(losses(1, 1, 1, 1), {"window": losses(1, 3, 2, 5), "h2o": losses(0, 1, 1, 1)}, 2)
    drawn = loss_beyond_full(frame, NAMES, {"window": 1, "h2o": 1})
    assert [one.name for one in drawn.data] == ["window", "H2O"]
    assert list(drawn.data[0].x) == [2, 3, 4] and list(drawn.data[0].y) == [1, 1.5, 2.5]
    upright = [shape.x0 for shape in drawn.layout.shapes if shape.x0 == shape.x1]
    assert upright == [2.5], "one line for both: token 3 is the first that is predicted from less"
    assert [note.text for note in drawn.layout.annotations] == ["first eviction"]
    apart = loss_beyond_full(frame, NAMES, {"window": 0, "h2o": 2})
    assert [note.text for note in apart.layout.annotations] == ["window", "H2O"]


def test_zoom_keeps_half_of_the_lines_and_rounding_stays_flat() -> None:
    three = {"window": losses(9, 9), "h2o": losses(1.5, 1), "random": losses(1, 2)}
    frame = loss_change_frame(losses(1, 1), three, 1)
    np.testing.assert_allclose(loss_beyond_full(frame, NAMES, {}, zoom=True).layout.yaxis.range, [-1.1, 1.1])
    assert loss_beyond_full(frame, NAMES, {}).layout.yaxis.range is None
    flat = loss_change_frame(losses(1, 1), {"window": losses(1.0000001, 1)}, 1)
    assert list(loss_beyond_full(flat, NAMES, {}).layout.yaxis.range) == [-1e-3, 1e-3]


def test_lost_attention_is_drawn_in_percent() -> None:
    frame = pd.DataFrame({"arm": ["h2o", "h2o"], "layer": [0, 3], "lost_share": [0.25, 0.5], "queries": [9, 9]})
    (line,) = lost_by_layer(frame, NAMES).data
    assert list(line.x) == [0, 3] and list(line.y) == [25, 50] and line.name == "H2O"


def test_the_matrix_has_its_rows_in_order() -> None:
    sets = {"window": evictions(4, (2, 0), (3, 1)), "h2o": evictions(4, (2, 1), (3, 2))}
    drawn = agreement_matrix(agreement_frame(sets), NAMES)
    np.testing.assert_allclose(drawn.data[0].z, [[1, 1 / 3], [1 / 3, 1]], atol=1e-6)
    assert list(drawn.layout.xaxis.ticktext) == list(drawn.layout.yaxis.ticktext) == ["window", "H2O"]
    assert drawn.layout.yaxis.autorange == "reversed"


def test_every_arm_has_a_look_of_its_own() -> None:
    for theme in ("light", "dark"):
        looks = [look(arm, theme) for arm in ARMS]
        signs = {(line["color"], line["dash"], marker["symbol"]) for line, marker in looks}
        assert len(signs) == len(ARMS) == len(REGISTRY) + 1
        assert len({marker["symbol"] for _, marker in looks}) == len(ARMS), "told apart without colour"
    assert look("something new", "light") == look("something new", "light")


def point(arm: str, share: float, perplexity: float) -> dict[str, object]:
    facts = {"budget_tokens": int(100 * share), "stored_tokens": 5, "evicted": 7}
    return {"arm": arm, "share": share, "perplexity": perplexity, **facts}


def test_a_sweep_has_one_line_a_policy_a_dense_line_and_the_mark_at_20_percent() -> None:
    frame = pd.DataFrame([point("window", 0.05, 80), point("window", 1.0, 20), point("random", 0.05, 30)])
    drawn = perplexity_by_budget(frame, 20.0, NAMES)
    assert [one.name for one in drawn.data] == ["window", "random", "full cache"]
    assert list(drawn.data[0].x) == [5, 100] and list(drawn.data[0].y) == [80, 20]
    assert list(drawn.data[-1].y) == [20, 20] and list(drawn.data[-1].x) == [5, 100]
    assert [shape.x0 for shape in drawn.layout.shapes] == [20]
    assert drawn.layout.annotations[0].x == pytest.approx(np.log10(20)), "an annotation of a log axis stands at the log"
    assert list(drawn.layout.xaxis.ticktext) == ["5", "20", "100"]
    low, high = drawn.layout.yaxis.range
    assert 10**low < 20 and 10**high > 80
    zoomed = perplexity_by_budget(frame, 20.0, NAMES, zoom=True).layout.yaxis
    assert zoomed.type is None and zoomed.range[0] < 20 and zoomed.range[1] == pytest.approx(20 + 1.1 * 35)
