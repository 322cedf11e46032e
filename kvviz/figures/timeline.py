"""Figures of one policy at work: the life of every token in a head's cache, and the cache against a full one."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from kvviz.figures.heatmap import Side, cell_centres, token_axes
from kvviz.figures.theme import PREDICTED, apply
from kvviz.locale import N_, Translate
from kvviz.palette import TEXT, Theme, colour
from kvviz.records import LEAVES, ROLES, Timeline

_MIB = 1024**2
_PEAKS = 16  # more would hide the line that they stand on
_FADED = 0.16  # what is gone is most of the picture and must not be the loudest part of it

# what a cell shows -> (code, name, meaning in the palette, opacity)
_LOOKS = (
    (ROLES.index("sink"), N_("sink"), "sink", 1.0),
    (ROLES.index("heavy"), N_("kept by its score"), "heavy", 1.0),
    (ROLES.index("recent"), N_("recent"), "recent", 1.0),
    (LEAVES, N_("goes now"), "evicted", 1.0),
    (ROLES.index("evicted"), N_("evicted"), "evicted", _FADED),
)


def token_timeline(
    life: Timeline,
    labels: Sequence[str],
    prompt: int,
    at: int | None = None,
    selected: int | None = None,
    t: Translate = N_,
    theme: Theme = "light",
) -> go.Figure:
    """Cached tokens by steps, coloured by what keeps them; `labels` has one label a token of the whole text.

    `life` as from `kvviz.analysis.timeline.timeline`. prompt: tokens that were read before any was written. at: the
    step that is looked at, selected: a token, both by their position.
    """
    figure = go.Figure()
    place = {"x": cell_centres(life.steps, life.cell[1]), "y": cell_centres(life.tokens, life.cell[0])}
    for code, name, meaning, opacity in _LOOKS:
        _layer(figure, life.cells == code, t(name), colour(meaning, theme), opacity, place, t)
    x, y = (
        Side(life.steps, life.cell[1], t("token being read")),
        Side(life.tokens, life.cell[0], t("cached token")),
    )
    token_axes(figure, x, y, labels)
    if prompt in life.steps:
        line = {"color": colour("decode", theme), "width": 2, "dash": "dot"}
        told = {"text": t("written from here on"), "font": {"color": colour("decode", theme), "size": 15}}
        figure.add_vline(x=prompt - 0.5, line=line, annotation=told, annotation_position="bottom left")
    if at in life.steps and at != life.steps[-1]:
        figure.add_vline(x=at, line={"color": TEXT[theme], "width": 1.5})
    if selected in life.tokens:
        edges = {"x0": life.steps.start - 0.5, "x1": life.steps.stop - 0.5, "y0": selected - 0.5, "y1": selected + 0.5}
        figure.add_shape(type="rect", **edges, line={"color": TEXT[theme], "width": 1.5})
    figure.update_layout(height=max(260, min(760, 170 + 13 * len(life.cells))), hovermode="closest")
    return apply(figure, theme)


def _layer(
    figure: go.Figure,
    where: np.ndarray,
    name: str,
    ink: str,
    opacity: float,
    place: dict[str, np.ndarray],
    t: Translate,
) -> None:
    """Cells in one colour, with an entry in the legend (a heatmap has none of its own)."""
    if not where.any():
        return
    told = (t("token {token}").format(token="%{y}"), t("when {token} has been read").format(token="%{x}"), name)
    figure.add_heatmap(
        z=np.where(where, 1, np.nan).astype(np.float32),
        **place,
        colorscale=[(0, ink), (1, ink)],
        opacity=opacity,
        showscale=False,
        hoverongaps=False,
        name=name,
        hovertemplate="<br>".join(told) + "<extra></extra>",
    )
    mark = {"symbol": "square", "size": 13, "color": ink, "opacity": max(opacity, 0.3)}
    figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker=mark, showlegend=True)


def cache_against_full(steps: pd.DataFrame, full: pd.DataFrame, t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """The cache of a run under a policy, and what the full cache would hold of the same tokens.

    `steps` as from `kvviz.frame`; `full` has seen_tokens and bytes, as the formula gives them.
    """
    figure = go.Figure()
    line = PREDICTED["line"] | {"color": colour("evicted", theme)}
    figure.add_scatter(
        x=full["seen_tokens"], y=full["bytes"] / _MIB, mode="lines", line=line, hoverinfo="skip",
        name=t("full cache: formula"),
    )  # fmt: skip
    told = t("{tokens} tokens seen, {stored} stored: {mib} MiB").format(
        tokens="%{x}", stored="%{customdata}", mib="%{y:.3f}"
    )
    figure.add_scatter(
        x=steps["seen_tokens"], y=steps["cache_bytes"] / _MIB, customdata=steps["stored_tokens"],
        name=t("this cache: measured"), hovertemplate=told + "<extra></extra>",
        mode="lines+markers", line={"color": colour("k", theme), "width": 2.5}, marker={"size": 5},
    )  # fmt: skip
    ink, peaks = colour("v", theme), steps.iloc[:: max(1, len(steps) // _PEAKS)]
    figure.add_scatter(
        x=peaks["seen_tokens"], y=peaks["peak_bytes"] / _MIB, name=t("peak within the step"),
        mode="markers", marker={"size": 8, "symbol": "triangle-up-open", "color": ink, "line": {"width": 1.5}},
        hovertemplate=t("at most {mib} MiB in this step").format(mib="%{y:.3f}") + "<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title=t("tokens seen"), rangemode="tozero")
    figure.update_yaxes(title=t("cache (MiB)"), rangemode="tozero")
    figure.update_layout(height=380)
    return apply(figure, theme)
