"""Figures of plans: bytes against context for several models, by layer kind, by layer, and three ways of counting."""

import html
from collections.abc import Mapping

import pandas as pd
import plotly.graph_objects as go

from kvviz.figures.theme import apply
from kvviz.locale import N_, Translate
from kvviz.palette import TEXT, Theme, colour, kind_meaning
from kvviz.units import size
from kvviz.words import LAYER_KINDS

_GIB = 1024**3
_INKS = ("k", "v", "decode", "heavy", "sink", "prefill")
_DASHES = ("solid", "dash", "dot", "longdash")
_SIZES = [(2.0**power, size(2.0 ** (power + 30))) for power in range(-30, 21, 4)]  # GiB, as people read it

COUNTS = {
    "least_bytes": N_("least"),
    "total_bytes": N_("as transformers stores it"),
    "vllm_bytes": N_("as vLLM reserves it"),
}


def context_curves(
    frame: pd.DataFrame,
    capacity: pd.DataFrame | None = None,
    *,
    log: bool = True,
    count: str = "total_bytes",
    t: Translate = N_,
    theme: Theme = "light",
) -> go.Figure:
    """Bytes of the cache against the length of the text, one line a model.

    `frame`: columns model, tokens and `count`, as `Plan.curve()` gives with the model's name added. `capacity`:
    columns gpu, room_bytes; each is a horizontal line. `log` makes both axes logarithmic.
    """
    figure = go.Figure()
    for place, (model, line) in enumerate(frame.groupby("model", sort=False)):
        ink, dash = _INKS[place % len(_INKS)], _DASHES[place % len(_DASHES)]
        figure.add_scatter(
            x=line["tokens"], y=line[count] / _GIB, mode="lines", name=html.escape(str(model)),
            line={"color": colour(ink, theme), "width": 2.5, "dash": dash},
            hovertemplate=t("{model}: {tokens} tokens, {gib} GiB").format(
                model=html.escape(str(model)), tokens="%{x:,}", gib="%{y:.3f}"
            ) + "<extra></extra>",
        )  # fmt: skip
    if len(frame):
        _capacity_lines(figure, capacity, (frame["tokens"].min(), frame["tokens"].max()), theme)
    return _context_axes(apply(figure, theme), log, t)


def _context_axes(figure: go.Figure, log: bool, t: Translate) -> go.Figure:
    """Tokens against bytes; a logarithmic axis is labelled with sizes rather than powers of ten."""
    figure.update_xaxes(title=t("tokens of context"), type="log" if log else "linear")
    if log:
        figure.update_xaxes(dtick=1)
        values, texts = zip(*_SIZES, strict=True)
        return figure.update_yaxes(title=t("cache"), type="log", tickvals=values, ticktext=texts)
    return figure.update_yaxes(title=t("cache (GiB)"), type="linear", rangemode="tozero")


def _capacity_lines(figure: go.Figure, capacity: pd.DataFrame | None, reach: tuple[float, float], theme: Theme) -> None:
    """Lines across the figure, as traces: shapes with a label go astray on logarithmic axes."""
    if capacity is None:
        return
    for _, row in capacity.iterrows():
        if row["room_bytes"] <= 0:  # the weights alone are too large; there is no line to draw
            continue
        figure.add_scatter(
            x=list(reach), y=[row["room_bytes"] / _GIB] * 2, mode="lines+text", showlegend=False,
            text=[html.escape(str(row["gpu"])), ""], textposition="top right", name=str(row["gpu"]),
            textfont={"size": 13, "color": TEXT[theme]}, line={"color": TEXT[theme], "width": 1.2, "dash": "dashdot"},
            hovertemplate=html.escape(str(row["gpu"])) + ": %{y:.1f} GiB<extra></extra>",
        )  # fmt: skip


def kinds_stacked(frame: pd.DataFrame, *, log_x: bool = False, t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """Bytes against the length of the text, stacked by layer kind. `frame` as from `Plan.kinds_curve()`."""
    figure = go.Figure()
    for kind, line in frame.groupby("kind", sort=False):
        if not line["bytes"].any():
            continue
        name = t(LAYER_KINDS.get(kind, kind))
        figure.add_scatter(
            x=line["tokens"], y=line["bytes"] / _GIB, name=name, stackgroup="kinds", mode="lines",
            line={"color": colour(kind_meaning(kind), theme), "width": 1.5},
            hovertemplate=t("{kind}: {tokens} tokens, {gib} GiB").format(
                kind=name, tokens="%{x:,}", gib="%{y:.3f}"
            ) + "<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title=t("tokens of context"), type="log" if log_x else "linear")
    figure.update_yaxes(title=t("cache (GiB)"), rangemode="tozero")
    return apply(figure, theme)


def layer_bars(layers: pd.DataFrame, t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """Bytes of every layer, coloured by its kind. `layers` as from `Plan.layers`."""
    figure = go.Figure()
    for kind, rows in layers.groupby("kind", sort=False):
        name = t(LAYER_KINDS.get(kind, kind))
        figure.add_bar(
            x=rows["layer"], y=rows["bytes"] / 1024**2, name=name, customdata=rows["formula"],
            marker={"color": colour(kind_meaning(kind), theme), "line": {"width": 0}},
            hovertemplate=t("layer {layer}, {kind}: {mib} MiB").format(
                layer="%{x}", kind=name, mib="%{y:,.2f}"
            ) + "<br>%{customdata}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(bargap=0.15)
    figure.update_xaxes(title=t("layer"))
    figure.update_yaxes(title=t("cache (MiB)"), rangemode="tozero")
    return apply(figure, theme)


def three_counts(curve: pd.DataFrame, *, log: bool = True, t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """One model counted three ways against the length of the text. `curve` as from `Plan.curve()`."""
    styles: Mapping[str, tuple[str, str]] = {
        "least_bytes": ("decode", "dot"),
        "total_bytes": ("k", "solid"),
        "vllm_bytes": ("v", "dash"),
    }
    figure = go.Figure()
    for column, (ink, dash) in styles.items():
        figure.add_scatter(
            x=curve["tokens"], y=curve[column] / _GIB, mode="lines", name=t(COUNTS[column]),
            line={"color": colour(ink, theme), "width": 2.5, "dash": dash},
            hovertemplate=t("{tokens} tokens: {gib} GiB").format(tokens="%{x:,}", gib="%{y:.3f}") + "<extra></extra>",
        )  # fmt: skip
    return _context_axes(apply(figure, theme), log, t)
