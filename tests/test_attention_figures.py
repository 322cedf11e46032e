"""Maps of attention and their pictures, from tiny models' real attention and from numbers worked out by hand."""

import html
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go
import pytest

from kvviz.analysis import maps
from kvviz.analysis.attention import mean_received
from kvviz.analysis.contribution import contribution_frame, shares_of
from kvviz.engine import rows as rows_module
from kvviz.figures.contribution import glow_and_fade, weighted_map
from kvviz.figures.heatmap import FLOOR, MODES, attention_map, coloured, diverging
from kvviz.figures.overtime import bands_over_time, received_over_time
from kvviz.figures.wall import allowed_cells, head_wall, tile_places
from kvviz.records import BANDS, POOL, LayerMeasures, MapView
from kvviz.summary import AttentionSummary, attention
from tests.test_attention import TOKENS, allowed_pairs, by_hand, eager, ids_of, window_of
from tests.tiny import FAMILIES

# equal ones, what looks like a number, a date, markup, markup that plotly would obey, right to left, split bytes
HOSTILE = ["<s>", "1E1", "2024-01-02", "the", "the", "<b>x</b>", "&lt;", "\u05e9\u05dc\u05d5\u05dd", "E7 8C AB", "7"]


@cache
def summary_of(family: str) -> AttentionSummary:
    return attention(FAMILIES[family](), ids_of(None))


@cache
def oracle_of(family: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Eager attention (heads, T, T) of each layer, and which pairs may be looked at."""
    lm = FAMILIES[family]()
    layers = [layer.layer for layer in summary_of(family).layers]
    return eager(lm, ids_of(None)), [allowed_pairs(TOKENS, window_of(lm, layer)) for layer in layers]


def expected_map(family: str, index: int, head: int | str) -> np.ndarray:
    (attentions, allowed), mix = oracle_of(family), {"mean": np.mean, "max": np.max}
    A = attentions[index]
    return np.where(allowed[index], mix[head](A, axis=0) if head in mix else A[head], np.nan)


def largest_of_cells(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Cell by cell, the long way."""
    height, width = (-(-values.shape[0] // rows), -(-values.shape[1] // columns))
    found = np.full((height, width), np.nan)
    for row in range(height):
        for column in range(width):
            cell = values[row * rows : (row + 1) * rows, column * columns : (column + 1) * columns]
            if not np.isnan(cell).all():
                found[row, column] = np.nanmax(cell)
    return found


def view_of(weights: np.ndarray, **options: object) -> MapView:
    """The view of one head's attention given by hand."""
    tokens = len(weights)
    builder = maps.MapBuilder(range(tokens), range(tokens), np.arange(1, tokens + 1), **options)
    builder.add(0, np.where(np.tri(tokens, dtype=bool), weights, np.nan).astype(np.float32))
    return builder.view()


BY_HAND = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.9, 0, 0.1, 0], [0.25, 0.25, 0.5, 0.0]])


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of few rows, that end in the middle of cells."""
    monkeypatch.setattr(rows_module, "_CELLS", 7 * 4 * TOKENS)


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt_oss", "deepseek", "qwen3_next", "bloom"])
@pytest.mark.parametrize("head", [1, "mean", "max"])
def test_a_view_is_the_map_of_eager_attention(family: str, head: int | str, small_blocks: None) -> None:
    for index, layer in enumerate(summary_of(family).layers):
        expected = expected_map(family, index, head)
        view = summary_of(family).view(layer.layer, head)
        assert view.cell == (1, 1)
        np.testing.assert_allclose(view.probability, expected, atol=1e-5)
        choices = np.isfinite(expected).sum(1)
        np.testing.assert_allclose(view.times_uniform, expected * choices[:, None], atol=1e-3)
        part = summary_of(family).view(layer.layer, head, queries=range(30, 61), keys=range(20, 50))
        np.testing.assert_allclose(part.probability, expected[30:61, 20:50], atol=1e-5)


@pytest.mark.parametrize("cells", [16, 30, 45])
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_pooled_cell_is_the_largest_of_its_values(
    family: str, cells: int, small_blocks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maps, "CELLS", cells)
    expected, choices = expected_map(family, 1, 2), allowed_pairs(TOKENS, 8 if family == "mistral" else None).sum(1)
    view = summary_of(family).view(1, 2, queries=range(11, 90), hidden=(0, 40))
    cell = (-(-79 // cells), -(-90 // cells))
    assert view.cell == cell and view.rank is None
    assert max(view.probability.shape) <= cells
    np.testing.assert_allclose(view.probability, largest_of_cells(expected[11:], *cell), atol=1e-5)
    np.testing.assert_allclose(
        view.times_uniform, largest_of_cells((expected * choices[:, None])[11:], *cell), atol=1e-3
    )
    expected[:, [0, 40]] = np.nan
    np.testing.assert_allclose(view.others, largest_of_cells(expected[11:], *cell), atol=1e-5)


def test_ranks_are_counted_among_all_keys_of_the_query() -> None:
    expected = expected_map("llama", 1, 0)
    view = summary_of("llama").view(1, 0, queries=range(50, 60), keys=range(20, 55))
    for row, query in enumerate(range(50, 60)):
        for column, key in enumerate(range(20, 55)):
            if key > query:
                assert np.isnan(view.rank[row, column])
            else:
                assert view.rank[row, column] == 1 + (expected[query] > expected[query, key]).sum()


def test_equal_keys_share_the_better_rank() -> None:
    assert view_of(BY_HAND).rank[3].tolist() == [2, 2, 1, 4]


def test_hidden_keys_are_left_out_and_their_mass_is_told() -> None:
    view = view_of(BY_HAND, hidden=(0,))
    np.testing.assert_allclose(view.hidden_mass, [1, 0.5, 0.9, 0.25], rtol=1e-6)
    assert np.isnan(view.others[:, 0]).all()
    np.testing.assert_allclose(view.others[3, 1:], [0.25, 0.5, 0], rtol=1e-6)  # not scaled up to 1
    np.testing.assert_allclose(view.probability[:, 0], [1, 0.5, 0.9, 0.25], rtol=1e-6)


def test_sink_columns_are_those_of_the_head() -> None:
    weights = np.zeros((2, 40, 40))
    weights[0, :, 0] = 1
    weights[1] = np.eye(40)
    weights[1, 3:] = 0
    weights[1, 3:, 3] = 1
    layer = by_hand(weights)
    assert maps.sink_columns(layer, 0) == (0,)
    assert maps.sink_columns(layer, 1) == (3,)
    assert maps.sink_columns(layer, "mean") == (0, 3)
    assert maps.sink_columns(layer, "mean", 0.6) == ()
    assert maps.sink_columns(layer, "max", 0.6) == (0, 3)


def test_colours_by_hand() -> None:
    view = view_of(BY_HAND, hidden=(0,))
    linear = coloured(view, "linear", str, "light")
    assert (linear["zmin"], linear["zmax"]) == (0, 1)
    np.testing.assert_allclose(linear["z"][3], BY_HAND[3], rtol=1e-6)

    log = coloured(view, "log", str, "light")
    np.testing.assert_allclose(log["z"][2, :3], [np.log10(0.9), np.log10(FLOOR), -1], rtol=1e-5)
    ends = log["colorbar"]["tickvals"][0], log["colorbar"]["tickvals"][-1]
    assert ends == (log["zmin"], log["zmax"]) == (np.log10(FLOOR), 0)
    assert log["colorbar"]["ticktext"][0].endswith("0.0001") and log["colorbar"]["ticktext"][-1] == "1"

    uniform = coloured(view, "uniform", str, "light")
    np.testing.assert_allclose(uniform["z"][1, :2], [0, 0], atol=1e-6)  # one of two keys: a half is uniform
    np.testing.assert_allclose(uniform["z"][2, 0], np.log2(0.9 * 3), rtol=1e-5)
    np.testing.assert_allclose(uniform["z"][3, :3], [0, 0, 1], atol=1e-6)
    assert uniform["z"][3, 3] < uniform["zmin"] and np.isfinite(uniform["z"][3, 3])  # zero has a colour
    assert uniform["zmin"] == -uniform["zmax"]
    assert dict(uniform["colorscale"])[0.5] == "#ffffff"

    hidden = coloured(view, "hidden", str, "light")
    assert hidden["zmax"] == pytest.approx(0.5)
    with pytest.raises(ValueError, match="linear"):
        coloured(view, "other", str, "light")


@pytest.mark.parametrize("mode", MODES)
def test_a_key_that_may_not_be_looked_at_has_no_value(mode: str) -> None:
    z = coloured(view_of(BY_HAND), mode, str, "light")["z"]
    assert np.isnan(z[~np.tri(4, dtype=bool)]).all()
    assert np.isfinite(z[np.tri(4, dtype=bool)]).all()


def test_diverging_colours_end_apart_in_both_themes() -> None:
    for theme in ("light", "dark"):
        inks = [ink for _, ink in diverging(theme)]
        assert len(set(inks)) == len(inks) and inks[len(inks) // 2] == "#ffffff"


@pytest.mark.parametrize("mode", MODES)
def test_the_hover_has_probability_and_rank_of_every_cell_in_every_mode(mode: str) -> None:
    summary = summary_of("llama")
    view = summary.view(1, 1, hidden=(0, 5))
    for trace in maps_of(attention_map(view, summary.labels, mode)):
        np.testing.assert_array_equal(trace.customdata[..., 0], view.probability)
        np.testing.assert_array_equal(trace.customdata[..., 1], view.rank)
        assert "%{customdata[0]" in trace.hovertemplate and "%{customdata[1]" in trace.hovertemplate
    shown = maps_of(attention_map(view, summary.labels, mode))
    answering = np.logical_or.reduce([np.isfinite(trace.z) for trace in shown])
    np.testing.assert_array_equal(answering, np.isfinite(view.probability))  # hidden keys answer, too


def maps_of(figure: go.Figure) -> list[go.Heatmap]:
    return [trace for trace in figure.data if trace.type == "heatmap"]


def written_at(axis: go.layout.XAxis, labels: list[str]) -> None:
    """The axis is numeric and has each label at its position, markup made harmless."""
    assert axis.type == "linear" and axis.tickmode == "array"
    assert list(axis.tickvals) == list(range(len(labels)))
    for position, (text, label) in enumerate(zip(axis.ticktext, labels, strict=True)):
        assert html.unescape(text) == f"{position} {label}"
        assert "<" not in text


@pytest.mark.parametrize("count", [len(HOSTILE), 100])
def test_every_token_has_a_cell_and_a_tick_of_its_own(count: int) -> None:
    labels = (HOSTILE * 10)[:count]
    view = view_of(np.tri(count) / np.arange(1, count + 1)[:, None])
    figure = attention_map(view, labels)
    (trace,) = maps_of(figure)
    assert trace.z.shape == (count, count)
    assert np.issubdtype(trace.x.dtype, np.number) and list(trace.x) == list(trace.y) == list(range(count))
    written_at(figure.layout.xaxis2, labels)
    written_at(figure.layout.yaxis2, labels)
    for seen, unseen, most in (
        (figure.layout.xaxis, figure.layout.xaxis2, 40),
        (figure.layout.yaxis, figure.layout.yaxis2, 30),
    ):
        assert len(seen.tickvals) <= most and set(seen.ticktext) <= set(unseen.ticktext)
        assert seen.range == unseen.range and unseen.overlaying and unseen.showticklabels is False
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]  # the first query is at the top


def test_pooled_axes_name_the_tokens_of_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "CELLS", 16)
    summary = summary_of("llama")
    figure = attention_map(summary.view(0, 0, keys=range(10, 90)), HOSTILE * 9)
    (trace,) = maps_of(figure)
    assert trace.z.shape == (15, 16)
    assert list(trace.x[:2]) == [12, 17] and list(trace.y[:2]) == [2.5, 8.5]
    assert html.unescape(figure.layout.xaxis2.ticktext[0]) == "10–14 <s> …"
    assert html.unescape(figure.layout.yaxis2.ticktext[-1]) == "84–89 the …"
    assert "largest" in trace.hovertemplate and "rank" not in trace.hovertemplate


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
def test_the_wall_has_every_heads_pooled_map(family: str) -> None:
    summary = summary_of(family)
    layer = summary.layers[1]
    heads = summary.heads()
    groups = heads.loc[heads["layer"] == layer.layer, "kv_head"].tolist()
    (wall,) = maps_of(head_wall(layer.pooled, groups, layer.choices, 2))
    side = -(-TOKENS // -(-TOKENS // POOL))
    allowed = np.isfinite(
        largest_of_cells(np.where(allowed_pairs(TOKENS, window_of(summary.lm, layer.layer)), 1, np.nan), 2, 2)
    )
    np.testing.assert_array_equal(allowed_cells(layer.choices), allowed)
    filled = 0
    for head, (row, column) in enumerate(tile_places(groups, side)):
        tile = wall.z[row : row + side, column : column + side]
        expected = np.where(allowed, np.sqrt(layer.pooled[head, :side, :side]), np.nan)
        np.testing.assert_allclose(tile, expected, rtol=1e-6)
        facts = wall.customdata[row : row + side, column : column + side]
        np.testing.assert_allclose(facts[allowed][:, 0], expected[allowed] ** 2, rtol=1e-5)
        assert (facts[..., 1] == head).all()
        filled += allowed.sum()
    assert np.isfinite(wall.z).sum() == filled  # nothing but the tiles


@pytest.mark.parametrize("tokens", [5, 64, 65, 90, 200])
@pytest.mark.parametrize("window", [None, 1, 5, 8])
def test_cells_of_the_wall_hold_a_pair_that_is_allowed(tokens: int, window: int | None) -> None:
    pairs, cell = allowed_pairs(tokens, window), -(-tokens // POOL)
    expected = np.isfinite(largest_of_cells(np.where(pairs, 1, np.nan), cell, cell))
    np.testing.assert_array_equal(allowed_cells(pairs.sum(1)), expected)


@pytest.mark.parametrize(("heads", "kv"), [(1, 1), (9, 3), (4, 1), (12, 12), (32, 8), (71, 1), (16, 2), (20, 4)])
def test_tiles_stand_apart_and_groups_together(heads: int, kv: int) -> None:
    side, groups = 10, [head // -(-heads // kv) for head in range(heads)]
    places = tile_places(groups, side)
    taken = np.zeros((max(row for row, _ in places) + side, max(column for _, column in places) + side), dtype=int)
    for row, column in places:
        taken[row : row + side, column : column + side] += 1
    assert taken.max() == 1 and (taken == 1).sum() == heads * side * side
    assert max(sum(row == other for other, _ in places) for row, _ in places) <= 8
    gaps: dict[bool, list[int]] = {True: [], False: []}
    for head, ((row, column), (next_row, next_column)) in enumerate(pairwise(places)):
        if row == next_row:
            gaps[groups[head] == groups[head + 1]].append(next_column - column - side)
    if kv < heads and gaps[True] and gaps[False]:
        assert max(gaps[True]) < min(gaps[False])


def test_groups_and_heads_are_named_and_the_open_head_is_framed() -> None:
    layer = summary_of("llama").layers[0]
    figure = head_wall(layer.pooled, [0, 0, 1, 1], layer.choices, 2, lambda message: f"‹{message}›")
    texts = [note.text for note in figure.layout.annotations]
    assert texts == [f"‹head {head}›" for head in range(4)] + ["‹KV head 0›", "‹KV head 1›"]
    framed = [shape for shape in figure.layout.shapes if shape.line.width]
    assert len(framed) == 1
    row, column = tile_places([0, 0, 1, 1], 45)[2]
    assert (framed[0].x0, framed[0].y0) == (column - 1, row - 1)


def test_contribution_is_attention_times_the_norm_of_what_the_value_adds() -> None:
    summary = summary_of("llama")
    layer = summary.layers[1]
    A = np.nan_to_num(expected_map("llama", 1, 3))
    norms = layer.contribution[3].astype(float)  # itself tested against the model's projection
    view = summary.view(1, 3)
    np.testing.assert_allclose(np.nan_to_num(view.contribution), A * norms, atol=1e-5 * norms.max())
    assert summary.view(1, "mean").contribution is None

    queries = TOKENS - np.arange(TOKENS)
    frame = contribution_frame(layer, 3)
    np.testing.assert_allclose(frame["received"], A.sum(0) / queries, atol=1e-5)
    np.testing.assert_allclose(frame["contributed"], A.sum(0) / queries * norms, atol=1e-5 * norms.max())
    np.testing.assert_allclose(frame["received_part"], frame["received"] / frame["received"].max())
    assert frame["contributed_part"].max() == 1

    shares = shares_of(layer, 3, 7)
    assert shares.weight == pytest.approx(A[:, 7].sum() / A.sum(), rel=1e-3)
    assert shares.contribution == pytest.approx((A * norms)[:, 7].sum() / (A * norms).sum(), rel=1e-3)


def test_a_sink_that_adds_nothing_glows_and_fades() -> None:
    weights = np.zeros((1, 20, 20))
    weights[0, :, 0] = 0.8
    weights[0] += 0.2 * np.eye(20)
    weights[0, 0, 0] = 1
    norms = np.ones((1, 20), dtype=np.float32)
    norms[0, 0] = 0.01
    layer = measured_with(by_hand(weights), norms)
    shares = shares_of(layer, 0, 0)
    assert shares.weight == pytest.approx((0.8 * 19 + 1) / 20)
    assert shares.contribution == pytest.approx(0.01 * 16.2 / (0.01 * 16.2 + 19 * 0.2), rel=1e-5)
    view = view_of(weights[0], norms=norms[0])
    labels = HOSTILE * 2
    plain, weighted = (maps_of(weighted_map(view, labels, each))[0] for each in (False, True))
    assert plain.z[10, 0] == pytest.approx(0.8) and weighted.z[10, 0] == pytest.approx(0.8 * 0.01 / 0.2)
    assert plain.z[10, 10] == pytest.approx(0.2) and weighted.z[10, 10] == pytest.approx(1)
    assert (plain.zmin, plain.zmax) == (weighted.zmin, weighted.zmax) == (0, 1)
    received, contributed = glow_and_fade(contribution_frame(layer, 0), labels).data
    assert received.y[0] == 1 and contributed.y[0] < 0.05 and max(contributed.y) == 1


def measured_with(layer: LayerMeasures, norms: np.ndarray) -> LayerMeasures:
    facts = {name: getattr(layer, name) for name in LayerMeasures.__slots__}
    return LayerMeasures(**facts | {"contribution": norms})


def test_norms_that_are_not_known_are_not_made_up() -> None:
    layer = by_hand([np.eye(12)])
    assert summary_of("bloom").view(0, 0).contribution is None
    with pytest.raises(ValueError, match="projection"):
        contribution_frame(layer, 0)


def bands_by_hand(family: str, queries: range, recent: int, prompt: int, layers: list[int]) -> np.ndarray:
    """Pair by pair, as the words say it."""
    summary, (attentions, _) = summary_of(family), oracle_of(family)
    found, heads = np.zeros((len(BANDS), len(queries))), 0
    for index in layers:
        sinks = mean_received(summary.layers[index]) > 0.2
        sinks[:, -8:] = False
        for head, A in enumerate(attentions[index]):
            heads += 1
            for column, query in enumerate(queries):
                for key in range(query + 1):
                    band = "prompt" if key < prompt else "written"
                    if query - key <= recent:
                        band = "recent"
                    if sinks[head, key]:
                        band = "sink"
                    if key == query:
                        band = "self"
                    found[BANDS.index(band), column] += A[query, key]
                found[BANDS.index("learned"), column] += 1 - A[query].sum()
    return found / heads


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt_oss", "bloom"])
@pytest.mark.parametrize(("queries", "prompt"), [(range(TOKENS), TOKENS), (range(40, TOKENS), 40)])
def test_bands_are_those_of_eager_attention_and_sum_to_one(
    family: str, queries: range, prompt: int, small_blocks: None
) -> None:
    summary = summary_of(family)
    for layer, indices in ((summary.layers[1].layer, [1]), (None, list(range(len(summary.layers))))):
        over = summary.over_time(layer, queries, recent=5, prompt_tokens=prompt, epsilon=0.2)
        expected = bands_by_hand(family, queries, 5, prompt, indices)
        np.testing.assert_allclose(over.bands, expected, atol=1e-5)
        np.testing.assert_allclose(over.bands.sum(0), 1, atol=1e-5)
    assert over.bands[BANDS.index("learned")].any() == (family == "gpt_oss")
    assert over.bands[BANDS.index("written")].any() == (prompt < TOKENS)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_what_keys_receive_over_time(family: str, small_blocks: None) -> None:
    summary, (attentions, allowed) = summary_of(family), oracle_of(family)
    queries = range(50, TOKENS)
    one = summary.over_time(summary.layers[2].layer, queries)
    expected = np.where(allowed[2], attentions[2].mean(0), np.nan)[50:].T
    np.testing.assert_allclose(one.received, expected, atol=1e-5)
    everything = summary.over_time(None, queries)
    some = np.logical_or.reduce(allowed)
    expected = np.where(some, np.concatenate(attentions).mean(0), np.nan)[50:].T
    np.testing.assert_allclose(everything.received, expected, atol=1e-5)


def test_over_time_is_pooled_on_both_sides_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "CELLS", 30)
    over = summary_of("llama").over_time(0, range(70, TOKENS), prompt_tokens=70)
    assert over.cell == (3, 1) and over.received.shape == (30, 20)
    expected = np.where(np.tri(TOKENS, dtype=bool), oracle_of("llama")[0][0].mean(0), np.nan)[70:].T
    np.testing.assert_allclose(over.received, largest_of_cells(expected, 3, 1), atol=1e-5)
    assert over.bands.shape == (len(BANDS), 20)


def test_the_figures_of_over_time() -> None:
    summary, labels = summary_of("gpt_oss"), HOSTILE * 9
    over = summary.over_time(1, range(40, TOKENS), prompt_tokens=40)
    (received,) = maps_of(received_over_time(over, labels, True))
    np.testing.assert_allclose(received.z**2, over.received, rtol=1e-5)
    np.testing.assert_array_equal(received.customdata, over.received)
    assert list(received.x) == list(range(40, TOKENS)) and list(received.y) == list(range(TOKENS))
    bands = bands_over_time(over, True, lambda message: f"‹{message}›")
    assert {trace.stackgroup for trace in bands.data} == {"mass"}
    np.testing.assert_allclose(sum(trace.y for trace in bands.data), 1, atol=1e-5)
    names = [trace.name for trace in bands.data]
    assert "‹sink (no token)›" in names and len(set(names)) == len(names)
    assert all(list(trace.x) == list(range(40, TOKENS)) for trace in bands.data)
    whole = summary_of("llama").over_time(1)
    assert "sink (no token)" not in [trace.name for trace in bands_over_time(whole, False).data]


def figures() -> dict[str, Callable[..., go.Figure]]:
    summary = summary_of("gpt_oss")
    labels, layer = summary.labels, summary.layers[1]
    view, over = summary.view(1, 1, hidden=(0,)), summary.over_time(1)
    return {
        **{mode: lambda t, theme, m=mode: attention_map(view, labels, m, t, theme) for mode in MODES},
        "wall": lambda t, theme: head_wall(layer.pooled, [0, 0, 1, 1], layer.choices, 0, t, theme),
        "weighted": lambda t, theme: weighted_map(view, labels, True, t, theme),
        "fade": lambda t, theme: glow_and_fade(contribution_frame(layer, 0), labels, t, theme),
        "received": lambda t, theme: received_over_time(over, labels, False, t, theme),
        "bands": lambda t, theme: bands_over_time(over, False, t, theme),
    }


@pytest.mark.parametrize("name", [*MODES, "wall", "weighted", "fade", "received", "bands"])
def test_every_word_is_translated_and_both_themes_differ(name: str) -> None:
    make = figures()[name]
    figure = make(lambda message: f"‹{message}›", "light")
    texts = [trace.name for trace in figure.data if trace.name]
    texts += [axis.title.text for axis in (*figure.select_xaxes(), *figure.select_yaxes()) if axis.title.text]
    texts += [trace.colorbar.title.text for trace in maps_of(figure) if trace.colorbar.title.text]
    for trace in figure.data:
        if trace.hovertemplate:
            texts += trace.hovertemplate.removesuffix("<extra></extra>").split("<br>")
    assert len(texts) > 1
    for text in texts:
        assert text.startswith("‹") and text.endswith("›"), text
    assert "{" not in "".join(texts).replace("%{", "")
    dark = make(str, "dark")
    assert figure.layout.template.layout.font.color != dark.layout.template.layout.font.color


@pytest.mark.parametrize("count", [1, 2, 9])
def test_one_and_two_tokens_have_pictures(count: int) -> None:
    summary = attention(FAMILIES["llama"](), ids_of(None, count))
    view, over = summary.view(0, 0), summary.over_time()
    for mode in MODES:
        assert maps_of(attention_map(view, summary.labels, mode))[-1].z.shape == (count, count)
    assert head_wall(summary.layers[0].pooled, [0, 0, 1, 1], summary.layers[0].choices).data
    assert glow_and_fade(contribution_frame(summary.layers[0], 0), summary.labels).data
    assert weighted_map(view, summary.labels, True).data
    np.testing.assert_allclose(over.bands.sum(0), 1, atol=1e-6)
    assert received_over_time(over, summary.labels, False).data and bands_over_time(over, False).data
