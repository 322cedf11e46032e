"""Figures of one run: the cache against tokens, and the time each token took."""

import pandas as pd
import plotly.graph_objects as go

from kvviz.figures.theme import MEASURED, PREDICTED, apply
from kvviz.locale import N_, Translate
from kvviz.palette import Theme, colour, kind_meaning
from kvviz.words import LAYER_KINDS, PHASES

_MIB = 1024**2
_MEASURED_POINTS = 24  # more would hide the line of the formula


def cache_growth(
    measured: pd.DataFrame, predicted: pd.DataFrame, t: Translate = N_, theme: Theme = "light"
) -> go.Figure:
    """Bytes held against tokens seen, by layer kind: measured points on the formula's dashed line.

    `measured` as from `kvviz.analysis.runs.kinds_frame`, `predicted` as from
    `kvviz.analysis.formula.predicted_frame`.
    """
    figure = go.Figure()
    for kind, line in predicted.groupby("kind", sort=False):
        name, ink = t(LAYER_KINDS.get(kind, kind)), colour(kind_meaning(kind), theme)
        points = _thinned(measured[measured["kind"] == kind])
        if line["bytes"].any():  # no formula gives the size of some states
            figure.add_scatter(
                x=line["seen_tokens"], y=line["bytes"] / _MIB, name=t("{kind}: formula").format(kind=name),
                hoverinfo="skip", **_inked(PREDICTED, "line", ink),
            )  # fmt: skip
        figure.add_scatter(
            x=points["seen_tokens"], y=points["bytes"] / _MIB, name=t("{kind}: measured").format(kind=name),
            customdata=points["stored_tokens"], **_inked(MEASURED, "marker", ink),
            hovertemplate=t("{tokens} tokens seen, {stored} stored: {mib} MiB").format(
                tokens="%{x}", stored="%{customdata}", mib="%{y:.3f}"
            ) + "<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title=t("tokens seen"), rangemode="tozero")
    figure.update_yaxes(title=t("cache (MiB)"), rangemode="tozero")
    return apply(figure, theme)


def token_times(steps: pd.DataFrame, t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """Milliseconds a token: the prefill's shared by its tokens, then one point a decode step.

    `steps` as from `kvviz.analysis.runs.steps_frame`.
    """
    figure = go.Figure()
    prefill, decode = steps[steps["phase"] == "prefill"], steps[steps["phase"] == "decode"]
    for _, step in prefill.iterrows():
        each = step["milliseconds"] / step["fed_tokens"]
        figure.add_scatter(
            x=[0, step["fed_tokens"]], y=[each, each], mode="lines", name=t(PHASES["prefill"]),
            line={"color": colour("prefill", theme), "width": 6},
            hovertemplate=t("{ms} ms for each of {count} tokens, computed together").format(
                ms="%{y:.2f}", count=step["fed_tokens"]
            ) + "<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=decode["seen_tokens"], y=decode["milliseconds"], mode="lines+markers", name=t(PHASES["decode"]),
        line={"color": colour("decode", theme), "width": 1.5}, marker={"size": 5},
        hovertemplate=t("token {position}: {ms} ms").format(position="%{x}", ms="%{y:.1f}") + "<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title=t("tokens seen"), rangemode="tozero")
    figure.update_yaxes(title=t("milliseconds per token"), rangemode="tozero")
    return apply(figure, theme)


def with_and_without(frame: pd.DataFrame, t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """Milliseconds of every step with the cache and without it, against the length of the text.

    `frame` as from `kvviz.analysis.recompute.comparison_frame`.
    """
    figure = go.Figure()
    arms = (
        ("with_cache_milliseconds", t("with cache"), colour("decode", theme), "solid"),
        ("without_cache_milliseconds", t("without cache"), colour("evicted", theme), "dot"),
    )
    for column, name, ink, dash in arms:
        figure.add_scatter(
            x=frame["text_tokens"], y=frame[column], mode="lines+markers", name=name,
            line={"color": ink, "width": 2, "dash": dash}, marker={"size": 5},
            hovertemplate=t("{count} tokens: {ms} ms").format(count="%{x}", ms="%{y:.1f}") + "<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title=t("tokens in the text"))
    figure.update_yaxes(title=t("milliseconds per token"), rangemode="tozero")
    return apply(figure, theme)


def _thinned(points: pd.DataFrame) -> pd.DataFrame:
    """First, last and evenly spaced points between."""
    every = max(1, len(points) // _MEASURED_POINTS)
    return pd.concat([points.iloc[::every], points.iloc[-1:]]).drop_duplicates("seen_tokens")


def _inked(style: dict, part: str, ink: str) -> dict:
    return style | {part: style[part] | {"color": ink}}
