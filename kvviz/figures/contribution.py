"""Weight against contribution: where a head looks, beside what that adds."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from kvviz.figures.attention import scale
from kvviz.figures.heatmap import cell_centres, ground, keys_side, queries_side, token_axes
from kvviz.figures.theme import apply, token_ticks
from kvviz.locale import N_, Translate
from kvviz.palette import Theme, colour
from kvviz.records import MapView

_LABELLED = 64  # keys up to which an axis shows tokens; beyond, positions
_BARS = 128  # keys up to which bars can be told apart; beyond, lines


def weighted_map(
    view: MapView, labels: Sequence[str], weighted: bool, t: Translate = N_, theme: Theme = "light"
) -> go.Figure:
    """The plain map or, `weighted`, the one times the norm of what each value adds; each up to its own largest."""
    values = view.contribution if weighted else view.probability
    largest = float(np.nanmax(values)) or 1.0
    told = t("attention × norm: {value}") if weighted else t("attention: {value}")
    title = t("attention × norm of what the value adds") if weighted else t("attention")
    figure = go.Figure(
        go.Heatmap(
            z=values / largest,
            x=cell_centres(view.keys, view.cell[1]),
            y=cell_centres(view.queries, view.cell[0]),
            customdata=values,
            zmin=0,
            zmax=1,
            colorscale=scale("v" if weighted else "k", theme),
            colorbar={"thickness": 14, "title": {"text": t("part of the largest"), "side": "right"}},
            hoverongaps=False,
            hovertemplate="<br>".join(
                [
                    t("query {token}").format(token="%{y}"),
                    t("key {token}").format(token="%{x}"),
                    told.format(value="%{customdata:.5f}") + "<extra></extra>",
                ]
            ),
        )
    )
    token_axes(figure, keys_side(view, t), queries_side(view, t), labels, most=(14, 22))
    figure.update_layout(title={"text": title}, height=540, plot_bgcolor=ground(theme), showlegend=False)
    return apply(figure, theme)


def glow_and_fade(frame: pd.DataFrame, labels: Sequence[str], t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """For every key what it received and what came of it, each as a part of its largest.

    `frame` as from `kvviz.analysis.contribution.contribution_frame`.
    """
    figure = go.Figure()
    lines = (
        ("received_part", "received", t("attention received"), "k"),
        ("contributed_part", "contributed", t("attention × norm of what the value adds"), "v"),
    )
    for part, value, name, meaning in lines:
        ink = colour(meaning, theme)
        facts = {
            "x": frame["position"], "y": frame[part], "name": name, "customdata": frame[value],
            "hovertemplate": t("key {position}: {value}, {part} of the largest").format(
                position="%{x}", value="%{customdata:.5f}", part="%{y:.1%}"
            ) + "<extra></extra>",
        }  # fmt: skip
        if len(frame) <= _BARS:
            figure.add_bar(marker={"color": ink, "line": {"width": 0}}, **facts)
        else:
            figure.add_scatter(mode="lines", line={"color": ink, "width": 1.5}, **facts)
    axis = token_ticks(labels) if len(labels) <= _LABELLED else {"type": "linear"}
    figure.update_xaxes(title=t("key (cached token)"), range=[-0.7, len(labels) - 0.3], **axis)
    figure.update_yaxes(title=t("part of the largest"), range=[0, 1.03], tickformat=".0%")
    figure.update_layout(height=340, barmode="group", bargap=0.1, bargroupgap=0)
    return apply(figure, theme)
