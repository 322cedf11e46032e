"""One map of attention, queries by keys, in four ways of colouring it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from kvviz.figures.attention import scale
from kvviz.figures.theme import apply, token_ticks
from kvviz.locale import N_, Translate
from kvviz.palette import PANEL, RAMPS, Theme, colour
from kvviz.records import MapView

FLOOR = 1e-4  # of the logarithmic colours
_FOLD = 6  # times uniform: colours end at 2^6 = 64 times, and at a 64th

MODES = {
    "linear": N_("0 to 1"),
    "log": N_("logarithmic"),
    "uniform": N_("times uniform"),
    "hidden": N_("sinks hidden"),
}


def attention_map(
    view: MapView, labels: Sequence[str], mode: str = "linear", t: Translate = N_, theme: Theme = "light"
) -> go.Figure:
    """`view` coloured by one of `MODES`; `labels` has one label for each token of the text.

    "linear": the probability, 0 to 1. "log": log10 of it, from `FLOOR` on. "uniform": log2 of it times the keys the
    query may look at, without colour where it is uniform. "hidden": the probability without the view's hidden keys,
    which are hatched, coloured up to the largest that is left. Raw probability and rank are on the hover in each.
    """
    x, y = cell_centres(view.keys, view.cell[1]), cell_centres(view.queries, view.cell[0])
    facts = {"customdata": facts_of(view), "hovertemplate": hover(view, t)}
    figure = go.Figure()
    if mode == "hidden" and view.hidden:
        _hatch(figure, view, theme)
        columns = np.isin(x, view.hidden)  # pooled cells also hold keys that are not hidden
        under = np.where(columns & ~np.isnan(view.probability), 0, np.nan).astype(np.float32)
        figure.add_heatmap(z=under, x=x, y=y, showscale=False, opacity=0, hoverongaps=False, **facts)
    figure.add_heatmap(x=x, y=y, hoverongaps=False, **facts, **coloured(view, mode, t, theme))
    token_axes(figure, keys_side(view, t), queries_side(view, t), labels)
    figure.update_layout(height=720, plot_bgcolor=ground(theme), showlegend=False)
    return apply(figure, theme)


def coloured(view: MapView, mode: str, t: Translate, theme: Theme) -> dict[str, object]:
    """Values, colours and colour bar of one of `MODES`; ValueError for another."""
    bar: dict[str, object] = {"thickness": 14, "title": {"side": "right", "text": t("attention")}}
    if mode == "linear":
        return {"z": view.probability, "zmin": 0, "zmax": 1, "colorscale": scale("k", theme), "colorbar": bar}
    if mode == "log":
        z = np.log10(np.maximum(view.probability, FLOOR))
        ticks = {"tickvals": [-4, -3, -2, -1, 0], "ticktext": ["≤ 0.0001", "0.001", "0.01", "0.1", "1"]}
        return {"z": z, "zmin": -4, "zmax": 0, "colorscale": scale("k", theme), "colorbar": bar | ticks}
    if mode == "uniform":
        z = np.log2(np.maximum(view.times_uniform, 2.0 ** -(2 * _FOLD)))
        ticks = {
            "tickvals": [-6, -4, -2, 0, 2, 4, 6],
            "ticktext": ["≤ 1/64", "1/16", "1/4", t("uniform"), "4 ×", "16 ×", "≥ 64 ×"],
            "title": {"side": "right", "text": t("attention × keys the query may look at")},
        }
        return {"z": z, "zmin": -_FOLD, "zmax": _FOLD, "colorscale": diverging(theme), "colorbar": bar | ticks}
    if mode == "hidden":
        largest = float(np.nanmax(view.others)) if np.isfinite(view.others).any() else 1.0
        return {"z": view.others, "zmin": 0, "zmax": largest, "colorscale": scale("k", theme), "colorbar": bar}
    raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")


def diverging(theme: Theme) -> list[tuple[float, str]]:
    """From less than uniform (blue) through white to more (orange); most cells are below, so blue stays quiet."""
    less, more = RAMPS["k"][theme], RAMPS["v"][theme]
    if theme == "dark":  # there the ramps get lighter with size; the ends are to stand out from the white middle
        less, more = less[::-1], more[::-1]
    steps = [*less[3::-1], "#ffffff", *more[1:5]]
    return [(index / (len(steps) - 1), ink) for index, ink in enumerate(steps)]


def ground(theme: Theme) -> str:
    """Behind a map: where a query may not look, told from every colour of a value."""
    return "#d8d9dc" if theme == "light" else "#3b3d42"


def facts_of(view: MapView) -> np.ndarray:
    """(rows, columns, 2) float32: probability and rank (NaN where pooled)."""
    rank = np.full_like(view.probability, np.nan) if view.rank is None else view.rank
    return np.stack([view.probability, rank], axis=-1)


def hover(view: MapView, t: Translate) -> str:
    """What a cell says: both tokens, the probability, the rank."""
    told = t("attention {value}, rank {rank} of this query's keys")
    if view.rank is None:
        told = t("largest attention {value}")
    value = told.format(value="%{customdata[0]:.5f}", rank="%{customdata[1]:.0f}")
    return (
        t("query {token}").format(token="%{y}")
        + "<br>"
        + t("key {token}").format(token="%{x}")
        + "<br>"
        + value
        + "<extra></extra>"
    )


def cell_centres(positions: range, cell: int) -> np.ndarray:
    """Where the cells of a side stand on its axis of positions."""
    return np.arange(positions.start, positions.stop, cell) + (cell - 1) / 2


class Side(NamedTuple):
    """One side of a map: positions, tokens of a cell, title."""

    positions: range
    cell: int
    title: str


def keys_side(view: MapView, t: Translate) -> Side:
    """The columns of a map."""
    return Side(view.keys, view.cell[1], t("key (cached token)"))


def queries_side(view: MapView, t: Translate) -> Side:
    """The rows of a map."""
    return Side(view.queries, view.cell[0], t("query (token being computed)"))


def token_axes(figure: go.Figure, x: Side, y: Side, labels: Sequence[str], most: tuple[int, int] = (40, 30)) -> None:
    """Positions on both axes, at `most` (x, y) that many tokens written at them, and every one on the hover.

    The hover reads its words from an axis's ticks: the traces lie on axes with a tick for every cell, unseen, over
    axes of the same range with few.
    """
    for letter, (positions, cell, title), written in (("x", x, most[0]), ("y", y, most[1])):
        words = [_words(labels, at, min(at + cell, positions.stop)) for at in positions[::cell]]
        ends = [positions.start - 0.5, positions.stop - 0.5]
        shared = {"range": ends if letter == "x" else ends[::-1], "showgrid": False}
        seen = {"title": {"text": title}, **_ticks(words, positions.start, cell, written)}
        unseen = {"overlaying": letter, "matches": letter, "showticklabels": False, "ticks": "", "showline": False}
        unseen |= _ticks(words, positions.start, cell, len(words))
        figure.update_layout({f"{letter}axis": shared | seen, f"{letter}axis2": shared | unseen})
    figure.update_traces(xaxis="x2", yaxis="y2")
    figure.add_scatter(x=[None], y=[None], hoverinfo="skip", showlegend=False)  # an axis without a trace is not drawn


def _ticks(words: Sequence[str], start: int, cell: int, most: int) -> dict[str, object]:
    ticks = token_ticks(words, most=most)
    return ticks | {"tickvals": [start + value * cell + (cell - 1) / 2 for value in ticks["tickvals"]]}


def _words(labels: Sequence[str], first: int, stop: int) -> str:
    return f"{first} {labels[first]}" if stop == first + 1 else f"{first}–{stop - 1} {labels[first]} …"


def _hatch(figure: go.Figure, view: MapView, theme: Theme) -> None:
    """Hatched columns over the hidden keys."""
    x, y = [], []
    for key in view.hidden:
        if view.cell == (1, 1) and key in view.keys:
            top = max(view.queries.start, key)
            x += [key - 0.5, key + 0.5, key + 0.5, key - 0.5, None]
            y += [top - 0.5, top - 0.5, view.queries.stop - 0.5, view.queries.stop - 0.5, None]
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        fill="toself",
        line={"width": 0},
        fillcolor=PANEL[theme],
        fillpattern={"shape": "/", "fgcolor": colour("sink", theme), "bgcolor": PANEL[theme], "size": 6},
        hoverinfo="skip",
    )
