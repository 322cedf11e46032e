"""What cached tokens receive as the text grows: a map of keys by queries, and where each query's attention goes."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from kvviz.figures.attention import scale
from kvviz.figures.heatmap import Side, cell_centres, ground, token_axes
from kvviz.figures.theme import apply
from kvviz.figures.wall import ROOT_TICKS
from kvviz.locale import N_, Translate
from kvviz.palette import PANEL, Theme, colour
from kvviz.records import BANDS, OverTime

# band -> (name, meaning in the palette)
NAMES = {
    "sink": (N_("sinks"), "sink"),
    "prompt": (N_("rest of the prompt"), "prefill"),
    "written": (N_("older tokens the model wrote"), "decode"),
    "recent": (N_("recent tokens"), "recent"),
    "self": (N_("the token itself"), "template"),
    "learned": (N_("sink (no token)"), "sink"),
}


def received_over_time(
    over: OverTime, labels: Sequence[str], decoding: bool, t: Translate = N_, theme: Theme = "light"
) -> go.Figure:
    """Rows are cached tokens, columns the queries after one another; `decoding` says that they are decode steps."""
    figure = go.Figure(
        go.Heatmap(
            z=np.sqrt(over.received),
            x=cell_centres(over.queries, over.cell[1]),
            y=cell_centres(over.keys, over.cell[0]),
            customdata=over.received,
            zmin=0,
            zmax=1,
            colorscale=scale("k", theme),
            colorbar={"thickness": 14, "title": {"side": "right", "text": t("attention (square root scale)")}}
            | ROOT_TICKS,
            hoverongaps=False,
            hovertemplate="<br>".join(
                [
                    t("key {token}").format(token="%{y}"),
                    t("query {token}").format(token="%{x}"),
                    t("attention received: {value}").format(value="%{customdata:.5f}") + "<extra></extra>",
                ]
            ),
        )
    )
    steps = t("decode step (token being computed)") if decoding else t("query (token being computed)")
    keys = Side(over.keys, over.cell[0], t("key (cached token)"))
    token_axes(figure, Side(over.queries, over.cell[1], steps), keys, labels, most=(40, 26))
    figure.update_layout(height=640, plot_bgcolor=ground(theme), showlegend=False)
    return apply(figure, theme)


def bands_over_time(over: OverTime, decoding: bool, t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """Stacked: the share of each query's attention that goes to each band; bands without any are left out."""
    figure = go.Figure()
    queries = np.asarray(over.queries)
    for band, mass in zip(BANDS, over.bands, strict=True):
        if not mass.any():
            continue
        word, meaning = NAMES[band]
        ink = colour(meaning, theme)
        striped = {"shape": "/", "fgcolor": ink, "bgcolor": PANEL[theme], "size": 8} if band == "learned" else None
        figure.add_scatter(
            x=queries, y=mass, name=t(word), stackgroup="mass", mode="lines", line={"width": 0.5, "color": ink},
            fillcolor=ink, fillpattern=striped,
            hovertemplate=t("{name}: {share}").format(name=t(word), share="%{y:.1%}") + "<extra></extra>",
        )  # fmt: skip
    title = t("decode step (token being computed)") if decoding else t("query (token being computed)")
    figure.update_xaxes(title=title, range=[queries[0], max(queries[-1], queries[0] + 1)])
    figure.update_yaxes(title=t("share of the attention"), range=[0, 1], tickformat=".0%")
    figure.update_layout(height=400, hovermode="x unified", legend={"traceorder": "normal"})
    return apply(figure, theme)
