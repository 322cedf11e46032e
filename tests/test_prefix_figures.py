"""Figures and components of the Prefix reuse page, from numbers worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from kvviz.figures.prefix import cell_size, distance_map, pair_distances, pooled
from kvviz.figures.prefixcache import held_bytes, hit_rates, reused_shares, served_tokens
from kvviz.figures.prefixtree import tree, tree_rows
from kvviz.ui.components.aligned_strips import states

MIB = 1024**2


def distances(layers: list[int], keys: list[list[float]]) -> pd.DataFrame:
    """The frame of `PrefixReuse.distances` for these keys; values are twice the keys."""
    rows = [
        (layer, position, key, 2 * key)
        for layer, row in zip(layers, keys, strict=True)
        for position, key in enumerate(row)
    ]
    return pd.DataFrame(rows, columns=["layer", "position", "key", "value"])


def test_the_map_has_every_distance_and_the_end_of_the_prefix() -> None:
    figure = distance_map(distances([0, 3], [[0, 0, 0.25], [0, 0, 0.5]]), ["a", "<b>", "c | d"], 2)
    keys, values = figure.data
    assert np.array(keys.z).tolist() == [[0, 0, 0.25], [0, 0, 0.5]]
    assert np.array(values.z).tolist() == [[0, 0, 0.5], [0, 0, 1.0]]
    assert np.array(keys.customdata)[:, 0].tolist() == [0, 3]  # the layers' own numbers, not their rows
    assert figure.layout.coloraxis.cmax == 1.0
    assert [shape.x0 for shape in figure.layout.shapes] == [1.5, 1.5]
    assert list(figure.layout.xaxis.ticktext) == ["0 a", "1 &lt;b&gt;", "2 c | d"]
    assert list(figure.layout.yaxis.ticktext) == ["0", "3"]


def test_a_prompt_without_any_difference_is_not_blown_up() -> None:
    figure = distance_map(distances([0], [[0.0, 1e-7]]), ["a", "a"], 2)
    assert figure.layout.coloraxis.cmax == 1e-3


def test_long_prompts_share_columns_by_their_largest() -> None:
    assert [cell_size(count) for count in (1, 256, 257, 1024)] == [1, 1, 2, 4]
    grid = np.array([[0.0, 3.0, 1.0, np.nan, 2.0]])
    assert pooled(grid, 2).tolist() == [[3.0, 1.0, 2.0]]
    assert np.isnan(pooled(np.array([[np.nan, np.nan, 1.0]]), 2)[0, 0])
    figure = distance_map(distances([0], [[float(at) for at in range(300)]]), ["x"] * 300, 10)
    assert list(figure.data[0].z[0][:3]) == [1, 3, 5] and list(figure.data[0].x[:3]) == [0.5, 2.5, 4.5]


def test_a_pair_is_two_lines_over_its_layers() -> None:
    frame = pd.DataFrame({"layer": [0, 2], "key": [0.0, 0.25], "value": [0.5, 1.0]})
    keys, values = pair_distances(frame).data
    assert (list(keys.x), list(keys.y), list(values.y)) == ([0, 2], [0, 0.25], [0.5, 1.0])
    assert keys.marker.symbol != values.marker.symbol


# abc, abd, abde and xy: "ab" is shared by "c" and "d", and "d" goes on with "e"; node 7 was used last by prompt 0
TREE = pd.DataFrame(
    [
        (1, 0, 0, 2, 8, 3, False, "ab"),
        (7, 0, 0, 2, 8, 0, True, "<b>xy"),
        (2, 1, 2, 1, 4, 1, True, "c"),
        (3, 1, 2, 1, 4, 3, False, "d"),
        (4, 3, 3, 1, 4, 3, True, "e"),
        (5, 3, 3, 2, 8, 2, True, "fg"),
    ],
    columns=["node", "parent", "start", "tokens", "bytes", "last_use", "leaf", "text"],
)


def test_a_node_stands_beside_all_its_leaves() -> None:
    placed = tree_rows(TREE).set_index("node")
    assert placed["rows"].to_dict() == {1: 3, 7: 1, 2: 1, 3: 2, 4: 1, 5: 1}
    assert placed["top"].to_dict() == {1: 0, 7: 3, 2: 0, 3: 1, 4: 1, 5: 2}


def test_bars_of_the_tree_lie_where_the_tokens_are() -> None:
    shared, own, oldest = tree(TREE).data
    assert [(base, length) for base, length in zip(shared.base, shared.x, strict=True)] == [(0, 2), (2, 1)]
    assert list(shared.y) == [1.5, 2.0]
    assert list(own.base) == [2, 3, 3] and list(own.x) == [1, 1, 2]
    assert list(oldest.y) == [3.5] and list(oldest.customdata[0]) == ["&lt;b&gt;xy", "8 B", 0, 7]
    assert "&lt;b&gt;" in oldest.text[0] and "<b>" not in oldest.text[0]
    assert set(own.textposition) == {"outside"} and set(shared.textposition) == {"inside"}


def test_an_empty_tree_is_an_empty_figure() -> None:
    assert all(len(bars.x) == 0 for bars in tree(TREE.iloc[:0]).data)


SERVED = pd.DataFrame(
    {
        "request": [0, 1, 2],
        "prompt_tokens": [4, 8, 4],
        "reused_tokens": [0, 4, 3],
        "computed_tokens": [4, 4, 1],
        "evicted_tokens": [0, 5, 0],
        "held_bytes": [2 * MIB, 3 * MIB, 3 * MIB],
        "hit_rate": [0, 4 / 12, 7 / 16],
    }
)


def test_bars_and_lines_of_a_run() -> None:
    reused, computed = served_tokens(SERVED).data
    assert list(reused.y) == [0, 4, 3] and list(computed.y) == [4, 4, 1]
    (line,) = hit_rates({"tree": SERVED}).data
    assert list(line.y) == [0, 4 / 12, 7 / 16] and line.name == "tree"


def test_what_is_held_against_the_budget_and_where_it_evicted() -> None:
    held, budget, gone = held_bytes(SERVED, 4 * MIB).data
    assert list(held.y) == [2, 3, 3] and list(budget.y) == [4, 4]
    assert (list(gone.x), list(gone.y), list(gone.customdata)) == ([1], [3], [5])
    assert len(held_bytes(SERVED, None).data) == 2


def test_shares_of_caches_side_by_side() -> None:
    (cells,) = reused_shares({"tree": SERVED, "blocks of 16": SERVED.assign(reused_tokens=0)}).data
    assert np.array(cells.z).tolist() == [[0, 0.5, 0.75], [0, 0, 0]]
    assert np.array(cells.customdata)[0, 1].tolist() == [4, 8]


@pytest.mark.parametrize(
    ("shared", "reused", "first", "second", "wanted"),
    [
        (2, 2, 4, 4, "reused reused parted rest"),
        (3, 2, 3, 3, "reused reused again"),
        (2, 1, 4, 2, "reused again only only"),
        (2, 2, 2, 3, "reused reused only"),
        (0, 0, 1, 3, "parted only only"),
    ],
)
def test_states_of_the_aligned_strips(shared: int, reused: int, first: int, second: int, wanted: str) -> None:
    assert " ".join(states(shared, reused, first, second)) == wanted
