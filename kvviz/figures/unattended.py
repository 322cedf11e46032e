"""Figures of the keys nobody looks at: a share a layer, a map of layers by keys, three queries over the same keys."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvviz.figures.attention import scale
from kvviz.figures.theme import apply, token_ticks
from kvviz.locale import N_, Translate
from kvviz.palette import RAMPS, Theme, colour

LABELLED = 64  # keys up to which an axis shows tokens; beyond, positions
FLOOR = 1e-4  # of a logarithmic axis of probabilities


def unattended_share(frame: pd.DataFrame, t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """Bars: the share of each layer's (head, key) entries never attended so far.

    `frame` as from `kvviz.attention(...).unattended()`.
    """
    layers = [str(layer) for layer in frame["layer"]]
    figure = go.Figure(
        go.Bar(
            x=np.arange(len(layers)),
            y=frame["share"].to_numpy(dtype=float),
            customdata=layers,
            marker={"color": _quiet(theme)},
            hovertemplate=t("layer {layer}: {share} of the entries").format(layer="%{customdata}", share="%{y:.1%}")
            + "<extra></extra>",
        )
    )
    every = max(1, -(-len(layers) // 16))
    ticks = list(range(0, len(layers), every))
    figure.update_xaxes(title=t("layer"), tickmode="array", tickvals=ticks, ticktext=[layers[tick] for tick in ticks])
    figure.update_yaxes(title=t("never attended so far"), tickformat=".0%", rangemode="tozero")
    return apply(figure, theme)


def unattended_map(
    share: np.ndarray,
    too_new: np.ndarray,
    out_of_window: np.ndarray,
    layers: Sequence[int],
    labels: Sequence[str],
    cell: int = 1,
    t: Translate = N_,
    theme: Theme = "light",
) -> go.Figure:
    """Layers by keys, shaded by the share of heads that never attended so far.

    share float (L, C), NaN where that cannot be told; too_new and out_of_window bool (L, C) say why; `layers` has
    their L numbers, `labels` one label a key, of which `cell` share a column.
    """
    columns = np.arange(share.shape[1]) * cell + (cell - 1) / 2
    rows = np.arange(len(layers))
    place = {"x": columns, "y": rows}
    figure = go.Figure(
        go.Heatmap(
            z=np.asarray(share, dtype=np.float32),
            **place,
            customdata=np.broadcast_to(np.asarray(layers)[:, None], share.shape),
            zmin=0,
            zmax=1,
            colorscale=scale("neutral", theme),
            colorbar={"title": {"text": t("share of heads"), "side": "right"}, "thickness": 14, "tickformat": ".0%"},
            hoverongaps=False,
            hovertemplate=t("layer {layer}, key {key}: {share} of the heads").format(
                layer="%{customdata}", key="%{x:.0f}", share="%{z:.1%}"
            )
            + "<extra></extra>",
        )
    )
    for where, meaning, name in (
        (too_new, "recent", t("too new to tell")),
        (out_of_window, "sliding", t("out of window")),
    ):
        if where.any():
            _area(figure, where, colour(meaning, theme), name, place)
    figure.update_xaxes(title=t("key (cached token)"), **_keys(labels))
    every = max(1, -(-len(layers) // 10))
    ticks = rows[::every]
    names = [str(layers[tick]) for tick in ticks]
    figure.update_yaxes(
        title=t("layer"), autorange="reversed", showgrid=False, tickmode="array", tickvals=ticks, ticktext=names
    )
    figure.update_layout(height=max(220, min(520, 140 + 14 * len(layers))))
    return apply(figure, theme)


def _area(figure: go.Figure, where: np.ndarray, ink: str, name: str, place: dict[str, np.ndarray]) -> None:
    """Cells in one colour, with an entry in the legend (a heatmap has none of its own)."""
    figure.add_heatmap(
        z=np.where(where, 1, np.nan).astype(np.float32),
        **place,
        colorscale=[(0, ink), (1, ink)],
        opacity=0.55,
        showscale=False,
        hoverongaps=False,
        name=name,
        hovertemplate=f"{name}<extra></extra>",
    )
    figure.add_scatter(
        x=[None], y=[None], mode="markers", name=name, marker={"symbol": "square", "size": 13, "color": ink},
        opacity=0.55, showlegend=True,
    )  # fmt: skip


def query_rows(
    rows: np.ndarray,
    positions: Sequence[int],
    lines: Sequence[float],
    labels: Sequence[str],
    t: Translate = N_,
    theme: Theme = "light",
) -> go.Figure:
    """Attention of a few queries, one panel above the other over the same keys, on a logarithmic axis.

    rows float (N, T), NaN where a query may not look; `positions` (N) are the queries', `lines` (N) the probability
    from which on each counts as attending; `labels` one label a key.
    """
    titles = [t("query {position}").format(position=position) for position in positions]
    figure = make_subplots(rows=len(rows), cols=1, shared_xaxes=True, vertical_spacing=0.06)
    keys = np.arange(rows.shape[1])
    for index, (row, position, line) in enumerate(zip(rows, positions, lines, strict=True)):
        with np.errstate(invalid="ignore"):
            attended = row >= line
        place = {"row": index + 1, "col": 1}
        for chosen, ink, name in (
            (attended, colour("heavy", theme), t("at or above the threshold")),
            (~attended & np.isfinite(row), _quiet(theme), t("below it")),
        ):
            figure.add_bar(
                x=keys[chosen], y=row[chosen], width=1, name=name, legendgroup=name, showlegend=index == 0,
                marker={"color": ink, "line": {"width": 0}},
                hovertemplate=t("query {query} gives key {key}: {value}").format(
                    query=position, key="%{x}", value="%{y:.4f}"
                ) + "<extra></extra>", **place,
            )  # fmt: skip
        figure.add_hline(y=line, line={"color": colour("sink", theme), "dash": "dot", "width": 2}, **place)
        figure.update_yaxes(title=titles[index], **place)
    figure.update_yaxes(
        type="log",
        range=[np.log10(FLOOR), 0],
        tickmode="array",
        tickvals=[1e-4, 1e-2, 1],
        ticktext=["0.0001", "0.01", "1"],
    )
    figure.update_xaxes(range=[-0.5, rows.shape[1] - 0.5], **_keys(labels))
    figure.update_xaxes(title=t("key (cached token)"), row=len(rows), col=1)
    figure.update_layout(height=150 * len(rows) + 130, barmode="overlay", bargap=0)
    return apply(figure, theme)


def _quiet(theme: Theme) -> str:
    """The middle of the ramp on which the map shades what nobody looked at."""
    return RAMPS["neutral"][theme][3]


def _keys(labels: Sequence[str]) -> dict[str, object]:
    """An axis of keys: tokens while they can be read, positions in a longer text."""
    return token_ticks(labels) if len(labels) <= LABELLED else {"type": "linear"}
