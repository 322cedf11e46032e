"""Figure of what taking tokens away does to every later one."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from kvviz.figures.theme import apply, token_ticks
from kvviz.figures.unattended import LABELLED
from kvviz.locale import N_, Translate
from kvviz.palette import Theme, colour


def loss_change(frame: pd.DataFrame, hidden: tuple[int, ...], t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """Bars: the change of every token's loss in nats, the places of the `hidden` tokens marked.

    `frame` as from `kvviz.analysis.knockout.losses_frame`.
    """
    figure = go.Figure()
    change, position = frame["change_nats"].to_numpy(dtype=float), frame["position"].to_numpy()
    for chosen, meaning, name in (
        (change >= 0, "sink", t("harder to predict without")),
        (change < 0, "k", t("easier to predict without")),
    ):
        figure.add_bar(
            x=position[chosen], y=change[chosen], width=1, name=name,
            marker={"color": colour(meaning, theme), "line": {"width": 0}},
            hovertemplate=t("token {position}: {change} nats").format(position="%{x}", change="%{y:+.3f}")
            + "<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=list(hidden), y=[0] * len(hidden), mode="markers", name=t("taken away"),
        marker={"symbol": "x", "size": 12, "color": colour("evicted", theme)},
        hovertemplate=t("token {position} taken away").format(position="%{x}") + "<extra></extra>",
    )  # fmt: skip
    labels = ["", *frame["token"]]
    axis = token_ticks(labels[1:], start=1) if len(labels) <= LABELLED else {"type": "linear"}
    figure.update_xaxes(title=t("predicted token"), range=[-0.5, len(labels) - 0.5], **axis)
    figure.update_yaxes(title=t("change of loss (nats)"))
    largest = float(np.abs(change).max()) if len(change) else 0.0
    if largest < 1e-3:  # rounding is not blown up to a picture
        figure.update_yaxes(range=[-1e-3, 1e-3])
    figure.update_layout(barmode="overlay", bargap=0)
    return apply(figure, theme)
