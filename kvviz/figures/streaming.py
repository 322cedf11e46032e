"""The streaming picture: running loss along a long text, and perplexity by the number of sinks beside the paper's."""

from math import ceil, log10

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvviz.figures.theme import apply
from kvviz.locale import N_, Translate
from kvviz.palette import TEXT, Theme, colour

# arm -> (meaning of the colour, dash, width)
_LINES = {
    "full": ("full", "solid", 2.5),
    "window": ("recent", "dash", 2.5),
    "sinks": ("sink", "solid", 2.5),
}
_PAPER = (
    ("circle-open", "dot"),
    ("square-open", "dash"),
    ("diamond-open", "dashdot"),
    ("triangle-up-open", "longdash"),
)


def running_loss(
    frame: pd.DataFrame,
    names: dict[str, str],
    window: int,
    marks: dict[int, str],
    t: Translate = N_,
    theme: Theme = "light",
) -> go.Figure:
    """Lines of the mean loss of the last `window` tokens; `marks` are positions with what happens there.

    `frame` as from `kvviz.analysis.streaming.running_frame` with the arms "full", "window" and "sinks".
    """
    figure = go.Figure()
    for arm, points in frame.groupby("arm", sort=False):
        meaning, dash, width = _LINES[arm]
        figure.add_scatter(
            x=points["position"], y=points["loss_nats"], name=names[arm],
            mode="lines" if len(points) > 1 else "markers",
            line={"color": colour(meaning, theme), "dash": dash, "width": width},
            marker={"color": colour(meaning, theme), "size": 9},
            hovertemplate=t("{policy}, token {position}: {loss} nats").format(
                policy=names[arm], position="%{x:,}", loss="%{y:.3f}"
            ) + "<extra></extra>",
        )  # fmt: skip
    for index, (position, told) in enumerate(sorted(marks.items())):
        figure.add_vline(
            x=position, line={"color": TEXT[theme], "width": 2, "dash": "dot"},
            annotation={
                "text": told, "yref": "paper", "y": 0.99 - 0.09 * (index % 2), "yanchor": "top", "xanchor": "left",
                "font": {"size": 15},
            },
        )  # fmt: skip
    figure.update_xaxes(title=t("position in the text (tokens)"), rangemode="tozero", tickformat=",d")
    figure.update_yaxes(title=t("loss, mean of {count} tokens (nats)").format(count=window), rangemode="tozero")
    return apply(figure.update_layout(height=430), theme)


def sinks_and_paper(
    measured: pd.DataFrame, paper: pd.DataFrame, full: float, t: Translate = N_, theme: Theme = "light"
) -> go.Figure:
    """Two panels over one axis: bars of what was measured by sink count, and the lines of the paper's models.

    `measured` as from `kvviz.analysis.streaming.sinks_frame`, `paper` as from `paper_frame`; `full` is the perplexity
    of the full cache on the same tokens.
    """
    counts = sorted({*paper["sinks"], *measured["sinks"]})
    place = {count: index for index, count in enumerate(counts)}
    figure = make_subplots(
        1, 2, shared_yaxes=True, horizontal_spacing=0.04, column_widths=[0.5, 0.5],
        subplot_titles=(t("measured here"), t("published: StreamingLLM, Table 2")),
    )  # fmt: skip
    figure.add_bar(
        x=[place[count] for count in measured["sinks"]], y=measured["perplexity"], width=0.6,
        marker={"color": [colour("sink" if count else "recent", theme) for count in measured["sinks"]]},
        text=[f"{value:,.2f}" for value in measured["perplexity"]], textposition="outside", cliponaxis=False,
        textfont={"size": 16}, showlegend=False, customdata=measured["sinks"],
        hovertemplate=t("{sinks} sinks: {perplexity}").format(sinks="%{customdata}", perplexity="%{text}")
        + "<extra></extra>",
        row=1, col=1,
    )  # fmt: skip
    figure.add_scatter(
        x=[-0.45, len(counts) - 0.55], y=[full, full], mode="lines", name=t("full cache, same tokens"),
        line={"color": colour("full", theme), "width": 2.5},
        hovertemplate=t("full cache: {perplexity}").format(perplexity="%{y:,.2f}") + "<extra></extra>", row=1, col=1,
    )  # fmt: skip
    for (model, points), (symbol, dash) in zip(paper.groupby("model", sort=False), _PAPER, strict=False):
        figure.add_scatter(
            x=[place[count] for count in points["sinks"]], y=points["perplexity"], mode="lines+markers", name=model,
            line={"color": colour("shared_layer", theme), "width": 1.8, "dash": dash},
            marker={"symbol": symbol, "size": 10, "color": colour("shared_layer", theme)},
            hovertemplate=model + ": %{y:,.2f}<extra></extra>", row=1, col=2,
        )  # fmt: skip
    figure.update_xaxes(
        title=t("sinks kept (0: the plain window)"), type="linear", range=[-0.5, len(counts) - 0.5],
        tickvals=list(place.values()), ticktext=[str(count) for count in counts],
    )  # fmt: skip
    figure.update_yaxes(type="log", dtick=1, range=_decades(measured, paper, full))
    figure.update_yaxes(title=t("perplexity (logarithmic)"), row=1, col=1)
    figure.update_annotations(font={"size": 17, "color": TEXT[theme]})
    legend = {"y": -0.2, "yanchor": "top"}
    return apply(figure.update_layout(height=470, legend=legend, margin={"t": 44}), theme)


def _decades(measured: pd.DataFrame, paper: pd.DataFrame, full: float) -> list[float]:
    """The axis begins below the least value, because a bar on a logarithmic axis has no foot of its own."""
    values = [*measured["perplexity"], *paper["perplexity"], full]
    return [log10(max(1e-3, min(values))) - 0.25, ceil(log10(max(values)) * 4) / 4 + 0.2]
