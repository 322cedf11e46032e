"""Policies side by side: loss against the full cache, attention lost, agreement; and how each policy's line looks."""

from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go

from kvviz.figures.attention import scale
from kvviz.figures.theme import apply
from kvviz.locale import N_, Translate
from kvviz.palette import BACKGROUND, TEXT, Theme, colour

# what a policy keeps gives its colour, the dash tells apart what shares one; a second sign beside the colour always
_LOOKS = {
    "window": ("recent", "solid", "circle"),
    "sinks_window": ("sink", "solid", "square"),
    "sinks_window_original": ("sink", "dash", "square-open"),
    "h2o": ("heavy", "solid", "diamond"),
    "scissorhands": ("decode", "solid", "triangle-up"),
    "tova": ("special", "dash", "triangle-down"),
    "snapkv": ("computed", "dashdot", "cross"),
    "knorm": ("full", "dash", "x"),
    "random": ("evicted", "dot", "circle-open"),
}
_OTHERS = ("v", "prefill", "linear", "k")


def look(arm: str, theme: Theme) -> tuple[dict[str, object], dict[str, object]]:
    """Line and marker of one policy, the same in every figure; an unknown one gets a look by its name."""
    known = _LOOKS.get(arm) or (_OTHERS[sum(map(ord, arm)) % len(_OTHERS)], "longdash", "star")
    ink = colour(known[0], theme)
    return {"color": ink, "dash": known[1], "width": 2.5}, {"color": ink, "symbol": known[2], "size": 9}


def loss_beyond_full(
    frame: pd.DataFrame,
    names: Mapping[str, str],
    firsts: Mapping[str, int],
    t: Translate = N_,
    theme: Theme = "light",
    zoom: bool = False,
) -> go.Figure:
    """Lines: every policy's loss beyond the full cache's along the text; `firsts` has positions of first evictions.

    With `zoom` the axis ends where it would cut off half of the policies, so that small differences are seen.
    `frame` as from `kvviz.analysis.compared.loss_change_frame`; `names` for people by arm.
    """
    figure = go.Figure()
    for arm, points in frame.groupby("arm", sort=False):
        line, _ = look(arm, theme)
        figure.add_scatter(
            x=points["position"], y=points["change_nats"], name=names[arm], mode="lines", line=line,
            hovertemplate=t("{policy}, token {position}: {change} nats").format(
                policy=names[arm], position="%{x}", change="%{y:+.3f}"
            ) + "<extra></extra>",
        )  # fmt: skip
        if len(points) == 1:
            figure.data[-1].update(mode="markers", marker=look(arm, theme)[1])
    figure.add_hline(y=0, line={"color": TEXT[theme], "width": 1.5})
    _mark_firsts(figure, names, firsts, t, theme)
    figure.update_xaxes(title=t("predicted token"))
    figure.update_yaxes(title=t("loss beyond the full cache's (nats)"))
    largest = frame["change_nats"].abs().groupby(frame["arm"]).max()
    if not len(largest) or largest.max() < 1e-3:  # rounding is not blown up to a picture
        figure.update_yaxes(range=[-1e-3, 1e-3])
    elif zoom:
        most = 1.1 * max(1e-3, largest.median())
        figure.update_yaxes(range=[-most, most])
    return apply(figure.update_layout(height=430), theme)


def _mark_firsts(
    figure: go.Figure, names: Mapping[str, str], firsts: Mapping[str, int], t: Translate, theme: Theme
) -> None:
    """One upright line for all policies that begin to drop at the same place."""
    places: dict[int, list[str]] = {}
    for arm, first in firsts.items():
        places.setdefault(first, []).append(names[arm])
    for index, (first, who) in enumerate(sorted(places.items())):
        told = t("first eviction") if len(places) == 1 or len(who) > 2 else ", ".join(who)
        figure.add_vline(
            x=first + 1.5,  # the token after is the first that can be predicted from less
            line={"color": TEXT[theme], "width": 1.5, "dash": "dot"},
            annotation={
                "text": told, "yref": "paper", "y": 0.99 - 0.08 * (index % 2), "yanchor": "top", "font": {"size": 14},
                "bgcolor": BACKGROUND[theme],
            },
        )  # fmt: skip


def lost_by_layer(
    frame: pd.DataFrame, names: Mapping[str, str], t: Translate = N_, theme: Theme = "light"
) -> go.Figure:
    """Lines: share of the full model's attention on dropped tokens, layer by layer.

    `frame` as from `kvviz.analysis.compared.lost_frame`.
    """
    figure = go.Figure()
    for arm, points in frame.groupby("arm", sort=False):
        line, marker = look(arm, theme)
        figure.add_scatter(
            x=points["layer"], y=100 * points["lost_share"], name=names[arm], mode="lines+markers", line=line,
            marker=marker | {"size": 7},
            hovertemplate=t("{policy}, layer {layer}: {percent} %").format(
                policy=names[arm], layer="%{x}", percent="%{y:.2f}"
            ) + "<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title=t("layer"), rangemode="tozero")
    figure.update_yaxes(title=t("attention lost (%)"), rangemode="tozero")
    return apply(figure.update_layout(height=400), theme)


def agreement_matrix(
    frame: pd.DataFrame, names: Mapping[str, str], t: Translate = N_, theme: Theme = "light"
) -> go.Figure:
    """Cells: Jaccard index of what two policies keep, written into each; as from `compared.agreement_frame`."""
    arms: Sequence[str] = list(dict.fromkeys(frame["arm"]))
    square = frame.pivot(index="arm", columns="other", values="jaccard").loc[arms, arms].to_numpy(dtype="float32")
    figure = go.Figure()
    figure.add_heatmap(
        z=square, zmin=0, zmax=1, colorscale=scale("k", theme), xgap=2, ygap=2, showscale=False,
        texttemplate="%{z:.2f}", textfont={"size": 15},
        hovertemplate=t("{one} and {other}: {index} in common").format(
            one="%{y}", other="%{x}", index="%{z:.3f}"
        ) + "<extra></extra>",
    )  # fmt: skip
    ticks = {"tickmode": "array", "tickvals": list(range(len(arms))), "ticktext": [names[arm] for arm in arms]}
    plain = {"showgrid": False, "showline": False, "ticks": ""}
    figure.update_xaxes(**ticks, **plain, side="bottom", tickangle=-35)
    figure.update_yaxes(**ticks, **plain, autorange="reversed")
    return apply(figure.update_layout(height=140 + 46 * len(arms), margin={"t": 16}), theme)
