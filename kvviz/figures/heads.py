"""Query heads and the key/value heads they share, and how far layers see."""

import pandas as pd
import plotly.graph_objects as go

from kvviz.figures.theme import apply
from kvviz.locale import N_, Translate
from kvviz.palette import TEXT, Theme, colour, kind_meaning
from kvviz.words import LAYER_KINDS


def head_groups(query_heads: int, kv_heads: int, t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """One layer: its query heads above, its K and V heads below, a line from each query head to the pair it reads."""
    figure = go.Figure()
    group = query_heads // kv_heads
    centres = [(head * group + (group - 1) / 2) for head in range(kv_heads)]
    x, y = [], []
    for head in range(query_heads):
        x += [head, centres[head // group], None]
        y += [1, 0.1, None]
    figure.add_scatter(x=x, y=y, mode="lines", line={"color": TEXT[theme], "width": 1}, opacity=0.45, hoverinfo="skip")
    size = max(5, min(22, 340 / query_heads))
    figure.add_scatter(
        x=list(range(query_heads)), y=[1] * query_heads, mode="markers", name=t("query heads"),
        marker={"size": size, "color": colour("decode", theme)},
        hovertemplate=t("query head {head}").format(head="%{x}") + "<extra></extra>",
    )  # fmt: skip
    for name, height in (("k", 0.05), ("v", -0.22)):
        label = t("keys") if name == "k" else t("values")
        figure.add_scatter(
            x=centres, y=[height] * kv_heads, mode="markers+text", name=label,
            text=[name.upper()] + [""] * (kv_heads - 1), textposition="middle left", textfont={"size": 15},
            marker={"size": size, "symbol": "square", "color": colour(name, theme)}, customdata=list(range(kv_heads)),
            hovertemplate=label + ", " + t("head {head}").format(head="%{customdata}") + "<extra></extra>",
        )  # fmt: skip
    apply(figure, theme)
    figure.update_xaxes(visible=False, range=[-0.07 * query_heads - 1, query_heads])
    figure.update_yaxes(visible=False, range=[-0.45, 1.2])
    figure.update_layout(height=210, showlegend=False, margin={"l": 4, "r": 4, "t": 8, "b": 8})
    return figure


def layer_reach(frame: pd.DataFrame, t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """How far back every layer sees, and how far that has travelled. `frame` as `geometry.reach.reach` gives it."""
    figure = go.Figure()
    figure.add_bar(
        y=frame["layer"], x=frame["reaches_tokens"], orientation="h", name=t("reached through the layers below"),
        marker={"color": TEXT[theme], "opacity": 0.22}, width=0.9,
        hovertemplate=t("layer {layer} reaches {tokens} tokens back").format(layer="%{y}", tokens="%{x:,}")
        + "<extra></extra>",
    )  # fmt: skip
    for kind, rows in frame.dropna(subset="sees_tokens").groupby("kind", sort=False):
        figure.add_bar(
            y=rows["layer"], x=rows["sees_tokens"].astype(int), orientation="h", width=0.55,
            name=t("{kind}: seen in one step").format(kind=t(LAYER_KINDS.get(kind, kind))),
            marker={"color": colour(kind_meaning(kind), theme)},
            hovertemplate=t("layer {layer} sees {tokens} tokens").format(layer="%{y}", tokens="%{x:,}")
            + "<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="overlay", height=max(320, 14 * len(frame) + 130))
    figure.update_xaxes(title=t("tokens back from the newest one"), rangemode="tozero")
    figure.update_yaxes(title=t("layer"), dtick=max(1, len(frame) // 16))
    return apply(figure, theme)
