"""Budget sweep: perplexity against the share of the cache that may stay."""

import math
from collections.abc import Mapping

import pandas as pd
import plotly.graph_objects as go

from kvviz.figures.policies import look
from kvviz.figures.theme import apply
from kvviz.locale import N_, Translate
from kvviz.palette import BACKGROUND, TEXT, Theme

_PAPERS = 20  # percent of the cache: the budget behind "5x less memory"
# labels of a logarithmic axis in each power of ten: few on a wide one, more on a narrow one
_STEPS = (1, 1.5, 2, 3, 5, 7)
_FINE_STEPS = (1, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 7, 8, 9)


def perplexity_by_budget(
    frame: pd.DataFrame,
    full: float,
    names: Mapping[str, str],
    t: Translate = N_,
    theme: Theme = "light",
    zoom: bool = False,
) -> go.Figure:
    """Lines: one a policy, `full` the perplexity with the full cache; both axes logarithmic.

    frame: arm, share, perplexity, budget_tokens, stored_tokens, evicted. With `zoom` the upright axis is linear and
    ends where it would cut off half of the policies.
    """
    figure = go.Figure()
    for arm, points in frame.groupby("arm", sort=False):
        line, marker = look(arm, theme)
        figure.add_scatter(
            x=100 * points["share"], y=points["perplexity"], name=names[arm], mode="lines+markers", line=line,
            marker=marker, customdata=points[["budget_tokens", "stored_tokens", "evicted"]].to_numpy(dtype=float),
            hovertemplate=t(
                "{policy}, {percent} % ({budget} tokens): perplexity {perplexity}<br>{stored} tokens stored at the "
                "end, {evicted} evicted over all layers and heads"
            ).format(
                policy=names[arm], percent="%{x:.3g}", budget="%{customdata[0]:,}", perplexity="%{y:.2f}",
                stored="%{customdata[1]:,}", evicted="%{customdata[2]:,}",
            ) + "<extra></extra>",
        )  # fmt: skip
    ends = [100 * share for share in (frame["share"].min(), frame["share"].max())] if len(frame) else [_PAPERS, 100]
    figure.add_scatter(
        x=ends, y=[full, full], name=t("full cache"), mode="lines", line={"color": TEXT[theme], "width": 2},
        hovertemplate=t("full cache: perplexity {perplexity}").format(perplexity="%{y:.2f}") + "<extra></extra>",
    )  # fmt: skip
    figure.add_vline(
        x=_PAPERS, line={"color": TEXT[theme], "width": 1.5, "dash": "dot"},
        annotation={
            "text": t("20 %: the papers' “5x”"), "yref": "paper", "y": 0.99, "yanchor": "top", "font": {"size": 14},
            "bgcolor": BACKGROUND[theme], "x": _log(_PAPERS),
        },
    )  # fmt: skip
    shown = sorted({*(100 * frame["share"]).round(6), _PAPERS})
    figure.update_xaxes(
        title=t("share of the text that may stay (%)"), type="log", tickmode="array", tickvals=shown,
        ticktext=[f"{each:g}" for each in shown],
    )  # fmt: skip
    _perplexities(figure, frame, full, zoom)
    figure.update_yaxes(title=t("perplexity of the second half"))
    return apply(figure.update_layout(height=480), theme)


def _perplexities(figure: go.Figure, frame: pd.DataFrame, full: float, zoom: bool) -> None:
    """The upright axis."""
    largest = frame["perplexity"].groupby(frame["arm"]).max() if len(frame) else pd.Series([full])
    if zoom:
        least = min(full, frame["perplexity"].min()) if len(frame) else full
        room = 1.1 * max(largest.median() - full, 0.02 * full)
        figure.update_yaxes(range=[least - 0.1 * room, full + room])
        return
    low, high = min(full, largest.min(), frame["perplexity"].min() if len(frame) else full), max(full, largest.max())
    ticks = [step * 10.0**power for power in range(9) for step in (_STEPS if high > 4 * low else _FINE_STEPS)]
    figure.update_yaxes(
        type="log", tickmode="array", tickvals=ticks, ticktext=[f"{tick:,g}" for tick in ticks],
        range=[_log(low * 0.96), _log(high * 1.04)],
    )  # fmt: skip


def _log(value: float) -> float:
    return math.log10(max(value, 1e-9))
