"""Figures of latent attention: the products of a way in their order, and costs against the length of the text."""

import re

import pandas as pd
import plotly.graph_objects as go

from kvviz.figures.theme import apply
from kvviz.locale import N_, Translate
from kvviz.palette import TEXT, Theme, colour
from kvviz.units import size

WAY_NAMES = {
    "mha": N_("MHA: K and V of every head kept"),
    "gqa": N_("GQA: K and V of groups kept"),
    "expanded": N_("latents kept, expanded"),
    "absorbed": N_("latents kept, absorbed"),
}
_INKS = {"mha": "prefill", "gqa": "k", "expanded": "v", "absorbed": "decode"}
# lines that lie on each other are told apart by width and dash: the later one is thinner and lets the other through
_LINES = {"mha": (8, "solid"), "gqa": (3, "dash"), "expanded": (8, "solid"), "absorbed": (3, "dash")}
_RESULTS = {"K": "k", "V": "v"}
_SIZES = [(2.0**power, size(2.0**power)) for power in range(0, 60, 5)]
_ROOM = 1.5  # of the longest bar: the numbers behind the bars need it


def latent_steps(stages: pd.DataFrame, way: str, t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """The products of `way`, first one on top: shapes at the left, multiply-adds as bars.

    `stages` as `kvviz.geometry.latent.latent_stages` gives it; both ways have the same axis, and room for as many rows.
    """
    rows = stages[stages["way"] == way].reset_index(drop=True)
    most = int(stages["multiply_adds"].max())
    deepest = int(stages["way"].value_counts().max())
    inks = [colour(_RESULTS.get(result, "decode"), theme) for result in rows["result"]]
    hover = t("{result}: {adds} multiply-adds = {cost}").format(
        result="%{customdata[0]}", adds="%{x:,}", cost="%{customdata[1]}"
    )
    figure = go.Figure(
        go.Bar(
            y=rows.index, x=rows["multiply_adds"], orientation="h", width=0.62,
            marker={"color": inks, "line": {"width": 0}}, texttemplate="%{x:.3s}",
            textposition="outside", textfont={"size": 17}, cliponaxis=False,
            customdata=rows[["result", "cost"]].map(_lowered).to_numpy(), hovertemplate=hover + "<extra></extra>",
        )
    )  # fmt: skip
    labels = [
        _lowered(f"<b>{row.result}</b> = {row.product}<br>{row.letters} = {row.shape}")
        for row in rows.itertuples(index=False)
    ]
    apply(figure, theme)
    figure.update_layout(height=90 + 66 * deepest, showlegend=False, margin={"t": 8})
    figure.update_xaxes(title=t("multiply-adds"), range=[0, most * _ROOM], tickformat="~s", nticks=5)
    figure.update_yaxes(
        tickmode="array", tickvals=list(rows.index), ticktext=labels, range=[deepest - 0.4, -0.6], showgrid=False,
        ticks="", tickfont={"size": 17, "color": TEXT[theme]},
    )  # fmt: skip
    return figure


def latent_curves(
    counts: pd.DataFrame,
    column: str,
    *,
    at: int | None = None,
    log: bool = True,
    t: Translate = N_,
    theme: Theme = "light",
) -> go.Figure:
    """`column` ("cached_bytes" or "multiply_adds") against tokens, one line a way.

    `counts` as `kvviz.latent_counts` gives it. `at` draws a line across at that many tokens; `log` makes both axes
    logarithmic.
    """
    figure = go.Figure()
    for way, line in counts.groupby("way", sort=False):
        width, dash = _LINES[way]
        name = t(WAY_NAMES[way])
        shown = [size(each) if column == "cached_bytes" else f"{each:,}" for each in line[column]]
        figure.add_scatter(
            x=line["tokens"], y=line[column], mode="lines", name=name, customdata=shown,
            line={"color": colour(_INKS[way], theme), "width": width, "dash": dash},
            hovertemplate=t("{way}, {tokens} tokens: {cost}").format(
                way=name, tokens="%{x:,}", cost="%{customdata}"
            ) + "<extra></extra>",
        )  # fmt: skip
    if at is not None:
        figure.add_vline(x=at, line={"color": TEXT[theme], "width": 1.2, "dash": "dashdot"})
    apply(figure, theme)
    kind = "log" if log else "linear"
    figure.update_xaxes(title=t("tokens in the cache"), type=kind, dtick=1 if log else None)
    figure.update_yaxes(type=kind, rangemode="normal" if log else "tozero")
    if column == "cached_bytes":
        most = float(counts[column].max())
        marks = _SIZES if log else [(most * part / 4, size(most * part / 4)) for part in range(5)]
        figure.update_yaxes(
            title=t("kept in the cache"), tickvals=[value for value, _ in marks], ticktext=[text for _, text in marks]
        )
    else:
        figure.update_yaxes(title=t("multiply-adds a step"), tickformat="~s")
    return figure


def _lowered(letters: str) -> str:
    """W_UK with its index below the line."""
    return re.sub(r"_([A-Z]+)", r"<sub>\1</sub>", letters)
