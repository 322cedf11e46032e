"""Figures of a prefix cache: what each prompt took from it, the hit rate, what it holds."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from kvviz.figures.attention import scale
from kvviz.figures.theme import apply
from kvviz.locale import N_, Translate
from kvviz.palette import RAMPS, TEXT, Theme, colour

_MIB = 1024**2
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def served_tokens(frame: pd.DataFrame, t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """Bars: tokens of each prompt, reused and computed. `frame` as `served_frame` gives it."""
    figure = go.Figure()
    for column, name, shape in (("reused", t("reused"), ""), ("computed", t("computed"), "/")):
        figure.add_bar(
            x=frame["request"], y=frame[f"{column}_tokens"], name=name,
            marker={"color": colour(column, theme), "line": {"width": 0}, "pattern": {"shape": shape, "size": 6}},
            hovertemplate=t("prompt {request}: {count} tokens {what}").format(
                request="%{x}", count="%{y}", what=name
            ) + "<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="stack", bargap=0.2, height=320)
    figure.update_xaxes(title=t("prompt"), dtick=max(1, len(frame) // 20))
    figure.update_yaxes(title=t("tokens"))
    return apply(figure, theme)


def hit_rates(frames: Mapping[str, pd.DataFrame], t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """Share of all tokens so far that were not computed, one line a cache: name -> `served_frame`."""
    figure = go.Figure()
    inks = [colour("reused", theme), *RAMPS["neutral"][theme][::-1]]
    for place, (name, frame) in enumerate(frames.items()):
        figure.add_scatter(
            x=frame["request"], y=frame["hit_rate"], name=name, mode="lines+markers", marker={"size": 6},
            line={"color": inks[place % len(inks)], "width": 2.5, "dash": _DASHES[place % len(_DASHES)]},
            hovertemplate=t("{name}, up to prompt {request}: {share}").format(
                name=name, request="%{x}", share="%{y:.1%}"
            ) + "<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title=t("prompt"))
    figure.update_yaxes(title=t("hit rate (by tokens)"), tickformat=".0%", range=[0, 1.02])
    figure.update_layout(height=360)
    return apply(figure, theme)


def held_bytes(frame: pd.DataFrame, budget: int | None, t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """What the cache holds after each prompt, the budget as a dashed line, and where it evicted."""
    figure = go.Figure()
    held = frame["held_bytes"] / _MIB
    figure.add_scatter(
        x=frame["request"], y=held, name=t("held"), mode="lines+markers", marker={"size": 6},
        line={"color": colour("reused", theme), "width": 2.5, "shape": "hv"},
        hovertemplate=t("after prompt {request}: {mib} MiB").format(request="%{x}", mib="%{y:.2f}") + "<extra></extra>",
    )  # fmt: skip
    if budget is not None and len(frame):
        figure.add_scatter(
            x=[frame["request"].iloc[0], frame["request"].iloc[-1]], y=[budget / _MIB] * 2, name=t("budget"),
            mode="lines", line={"color": TEXT[theme], "width": 2, "dash": "dash"}, hoverinfo="skip",
        )  # fmt: skip
    gone = frame["evicted_tokens"] > 0
    figure.add_scatter(
        x=frame.loc[gone, "request"], y=held[gone], name=t("evicted something"), mode="markers",
        customdata=frame.loc[gone, "evicted_tokens"],
        marker={"symbol": "x", "size": 11, "color": colour("sink", theme)},
        hovertemplate=t("prompt {request} pushed out {count} tokens").format(
            request="%{x}", count="%{customdata}"
        ) + "<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title=t("prompt"))
    figure.update_yaxes(title=t("held (MiB)"), rangemode="tozero")
    figure.update_layout(height=360)
    return apply(figure, theme)


def reused_shares(frames: Mapping[str, pd.DataFrame], t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """Caches by prompts: the share of each prompt that was reused. name -> `served_frame`; one row each."""
    figure, names = go.Figure(), list(frames)
    shares = [(frame["reused_tokens"] / frame["prompt_tokens"]).to_numpy() for frame in frames.values()]
    figure.add_heatmap(
        z=np.array(shares, dtype=np.float32), x=np.arange(len(shares[0]) if shares else 0), y=np.arange(len(names)),
        zmin=0, zmax=1, colorscale=scale("neutral", theme), xgap=2, ygap=2,
        customdata=np.stack([frame[["reused_tokens", "prompt_tokens"]].to_numpy() for frame in frames.values()])
        if names else None,
        colorbar={"thickness": 14, "tickformat": ".0%", "title": {"side": "right", "text": t("reused")}},
        hovertemplate=t("{cache}, prompt {request}: {reused} of {tokens} tokens reused").format(
            cache="%{y}", request="%{x}", reused="%{customdata[0]}", tokens="%{customdata[1]}"
        ) + "<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title=t("prompt"), showgrid=False, dtick=max(1, (len(shares[0]) if shares else 0) // 20))
    rows = list(range(len(names)))
    figure.update_yaxes(tickvals=rows, ticktext=names, autorange="reversed", showgrid=False)
    figure.update_layout(height=120 + 44 * len(names))
    return apply(figure, theme)
