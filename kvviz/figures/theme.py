"""The look of every plotly figure: sizes for a projector, colours from the palette, light and dark."""

import html
from collections.abc import Sequence

import plotly.graph_objects as go

from kvviz.palette import BACKGROUND, COLOURS, PANEL, TEXT, Theme, colour

FONT = "'Source Sans', 'Noto Sans TC', 'Noto Sans CJK TC', 'PingFang TC', 'Microsoft JhengHei', sans-serif"

# predicted against measured is told by the style of the line, so that the colour stays free for its meaning
PREDICTED = {"mode": "lines", "line": {"dash": "dash", "width": 2.5}}
MEASURED = {"mode": "markers", "marker": {"size": 8, "line": {"width": 0}}}

_QUIET: dict[Theme, str] = {"light": "#565b68", "dark": "#b9bdc7"}  # axis text: 4.5:1 and more
_GRID: dict[Theme, str] = {"light": "#e6e8ee", "dark": "#2c3039"}
_CYCLE = ("k", "v", "decode", "heavy", "sink", "prefill")


def apply(figure: go.Figure, theme: Theme) -> go.Figure:
    """Give `figure` the look of `theme` and return it; show it with `st.plotly_chart(..., theme=None)`."""
    return figure.update_layout(template=template(theme))


def template(theme: Theme) -> go.layout.Template:
    """A plotly template: transparent, one quiet grid, CJK-capable fonts."""
    axis = {
        "gridcolor": _GRID[theme],
        "linecolor": _QUIET[theme],
        "tickcolor": _QUIET[theme],
        "tickfont": {"size": 15, "color": _QUIET[theme]},
        "title": {"font": {"size": 16, "color": TEXT[theme]}, "standoff": 12},
        "zeroline": False,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "automargin": True,
    }
    layout = go.Layout(
        font={"family": FONT, "size": 16, "color": TEXT[theme]},
        title={"font": {"size": 19, "color": TEXT[theme]}, "x": 0, "xanchor": "left"},
        colorway=[colour(name, theme) for name in _CYCLE],
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        xaxis={**axis, "showgrid": False},
        yaxis=axis,
        legend={"font": {"size": 15, "color": TEXT[theme]}, "orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        hoverlabel={
            "font": {"family": FONT, "size": 15, "color": TEXT[theme]},
            "bgcolor": PANEL[theme],
            "bordercolor": _QUIET[theme],
        },
        margin={"l": 16, "r": 16, "t": 56, "b": 16},
    )
    return go.layout.Template(layout=layout)


def colours(theme: Theme) -> dict[str, str]:
    """Meaning -> colour of one theme, for traces that are named after a meaning."""
    return {meaning: colour(meaning, theme) for meaning in COLOURS}


def token_ticks(labels: Sequence[str], start: int = 0, most: int = 40) -> dict[str, object]:
    """Axis settings that write `labels` at the integers from `start` on, at most `most` of them, evenly thinned.

    The axis stays numeric (a category axis merges equal labels) and markup in a label is shown, not obeyed.
    """
    every = max(1, -(-len(labels) // most))
    shown = range(0, len(labels), every)
    return {
        "type": "linear",
        "tickmode": "array",
        "tickvals": [start + index for index in shown],
        "ticktext": [html.escape(labels[index], quote=False) for index in shown],
    }


def background(theme: Theme) -> str:
    """The page behind a transparent figure, for exported pictures that need one."""
    return BACKGROUND[theme]
