"""Small maps of all heads of a layer, as one picture."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import plotly.graph_objects as go

from kvviz.figures.attention import scale
from kvviz.figures.heatmap import ground
from kvviz.figures.theme import apply
from kvviz.locale import N_, Translate
from kvviz.palette import TEXT, Theme, colour
from kvviz.records import POOL

_GAP = 3  # cells between the maps of one K/V head
_GROUP_GAP = 9  # and between K/V heads
_LABEL = 11  # above a row of maps
_ABREAST = 8  # maps in a row
_PIXELS = 960
_SHOWN = (0, 0.01, 0.05, 0.2, 0.5, 1)
ROOT_TICKS = {"tickvals": [value**0.5 for value in _SHOWN], "ticktext": [f"{value:g}" for value in _SHOWN]}


def head_wall(
    pooled: np.ndarray,
    kv_heads: Sequence[int],
    choices: np.ndarray,
    chosen: int | None = None,
    t: Translate = N_,
    theme: Theme = "light",
) -> go.Figure:
    """`LayerMeasures.pooled` (H, POOL, POOL) of one layer, heads that share a K/V head side by side.

    kv_heads has the K/V head of each head, choices (T,) how many keys each query may look at. Colours by the square
    root of the probability, so that little is seen beside much. The `chosen` head is framed.
    """
    side, allowed = len(allowed_cells(choices)), allowed_cells(choices)
    places = tile_places(kv_heads, side)
    height, width = (max(at[axis] for at in places) + side for axis in (0, 1))
    canvas = np.full((height, width), np.nan, dtype=np.float32)
    facts = np.zeros((height, width, 2), dtype=np.float32)
    figure = go.Figure()
    for head, (row, column) in enumerate(places):
        tile = np.where(allowed, pooled[head, :side, :side], np.nan)
        canvas[row : row + side, column : column + side] = np.sqrt(tile)
        facts[row : row + side, column : column + side, 0] = tile
        facts[row : row + side, column : column + side, 1] = head
        _frame(figure, head, (row, column), side, head == chosen, t, theme)
    bar = {"title": {"side": "right", "text": t("attention (square root scale)")}, "thickness": 14}
    figure.add_heatmap(
        z=canvas, zmin=0, zmax=1, colorscale=scale("k", theme), customdata=facts, hoverongaps=False,
        colorbar=bar | ROOT_TICKS,
        hovertemplate=t("head {head}: {value}").format(head="%{customdata[1]}", value="%{customdata[0]:.4f}")
        + "<extra></extra>",
    )  # fmt: skip
    _group_names(figure, kv_heads, places, t, theme)
    unseen = {"showticklabels": False, "ticks": "", "showline": False, "showgrid": False, "title": None}
    figure.update_xaxes(range=[-0.5, width - 0.5], **unseen)
    figure.update_yaxes(range=[height - 0.5, -_LABEL - 0.5], **unseen)
    figure.update_layout(height=round((_PIXELS - 150) * (height + _LABEL) / width) + 32, margin={"t": 16})
    return apply(figure, theme)


def allowed_cells(choices: np.ndarray) -> np.ndarray:
    """Which cells of a pooled map hold a pair of a query and a key it may look at, square bool."""
    tokens = len(choices)
    cell = max(1, -(-tokens // POOL))
    starts = np.arange(0, tokens, cell)
    query = np.arange(tokens)
    oldest = np.minimum.reduceat(query + 1 - choices, starts)  # that a query of each row may look at
    newest = np.maximum.reduceat(query, starts)
    return (starts[None, :] <= newest[:, None]) & (starts[None, :] + cell > oldest[:, None])


def tile_places(kv_heads: Sequence[int], side: int) -> list[tuple[int, int]]:
    """Row and column of each head's first cell: groups of a K/V head are kept together, as many as fit in a row."""
    sizes = [len(list(group)) for _, group in groupby(kv_heads)]
    alone = max(sizes) == 1  # nothing is shared, so no wider gap says where a group ends
    places: list[tuple[int, int]] = []
    row = column = abreast = 0
    for size in sizes:
        if abreast and abreast + size > _ABREAST:
            row, column, abreast = row + side + _LABEL + _GAP, 0, 0
        for index in range(size):
            if index and index % _ABREAST == 0:  # one group longer than a row
                row, column, abreast = row + side + _LABEL + _GAP, 0, 0
            places.append((row, column))
            column, abreast = column + side + _GAP, abreast + 1
        column += 0 if alone else _GROUP_GAP
    return places


def _frame(
    figure: go.Figure, head: int, place: tuple[int, int], side: int, chosen: bool, t: Translate, theme: Theme
) -> None:
    row, column = place
    figure.add_shape(
        type="rect", layer="below", x0=column - 0.5, x1=column + side - 0.5, y0=row - 0.5, y1=row + side - 0.5,
        fillcolor=ground(theme), line={"width": 0},
    )  # fmt: skip
    if chosen:
        figure.add_shape(
            type="rect", x0=column - 1, x1=column + side, y0=row - 1, y1=row + side,
            line={"width": 4, "color": colour("sink", theme)},
        )  # fmt: skip
    figure.add_annotation(
        x=column + side - 2, y=row + 1, xanchor="right", yanchor="top", showarrow=False,
        text=t("head {head}").format(head=head), font={"size": 13, "color": TEXT[theme]},
    )  # fmt: skip


def _group_names(
    figure: go.Figure, kv_heads: Sequence[int], places: Sequence[tuple[int, int]], t: Translate, theme: Theme
) -> None:
    if len(set(kv_heads)) == len(kv_heads):
        return
    for first in [kv_heads.index(group) for group in sorted(set(kv_heads))]:
        row, column = places[first]
        figure.add_annotation(
            x=column, y=row - 1, xanchor="left", yanchor="bottom", showarrow=False,
            text=t("KV head {head}").format(head=kv_heads[first]), font={"size": 15, "color": TEXT[theme]},
        )  # fmt: skip
