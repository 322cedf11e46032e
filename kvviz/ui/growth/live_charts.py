"""The two charts while the model decodes: redrawn in place several times a second, which plotly's cannot be."""

import pandas as pd
import streamlit as st

from kvviz.palette import colour, kind_meaning
from kvviz.ui.shell import Page
from kvviz.words import LAYER_KINDS, PHASES

_MIB = 1024**2


def live_bytes(measured: pd.DataFrame, page: Page, key: str) -> None:
    """Bytes held against tokens seen, one line a layer kind (`kinds_frame`)."""
    t = page.t
    series = [
        line(
            t(LAYER_KINDS.get(kind, kind)),
            points["seen_tokens"],
            points["bytes"] / _MIB,
            colour(kind_meaning(kind), page.theme),
        )
        for kind, points in measured.groupby("kind", sort=False)
    ]
    chart(series, t("tokens seen"), t("cache (MiB)"), key)


def live_times(steps: pd.DataFrame, page: Page, key: str) -> None:
    """Milliseconds a token of each decode step, the prefill's beside it (`steps_frame`)."""
    t, decode = page.t, steps[steps["phase"] == "decode"]
    first = steps.iloc[0]
    each = first["milliseconds"] / first["fed_tokens"]
    prefill = line(
        t(PHASES["prefill"]),
        pd.Series([0, first["fed_tokens"]]),
        pd.Series([each, each]),
        colour("prefill", page.theme),
    )
    prefill["lineStyle"]["width"] = 6
    pace = line(t(PHASES["decode"]), decode["seen_tokens"], decode["milliseconds"], colour("decode", page.theme))
    chart([prefill, pace], t("tokens seen"), t("milliseconds per token"), key)


def line(name: str, x: pd.Series, y: pd.Series, ink: str) -> dict:
    """A series of points, for `chart`."""
    points = [[int(left), round(float(right), 4)] for left, right in zip(x, y, strict=True)]
    style = {"lineStyle": {"color": ink, "width": 2}, "itemStyle": {"color": ink}}
    return {"type": "line", "name": name, "data": points, "symbolSize": 4, **style}


def chart(series: list[dict], x: str, y: str, key: str) -> None:
    """Draw `series` over two axes that start at 0."""
    axis = {"type": "value", "nameLocation": "middle", "nameTextStyle": {"fontSize": 15}, "axisLabel": {"fontSize": 14}}
    spec = {
        "animation": False,
        "legend": {"top": 0, "left": 0, "textStyle": {"fontSize": 14}},
        "grid": {"left": 70, "right": 16, "top": 44, "bottom": 52},
        "xAxis": axis | {"name": x, "nameGap": 30, "min": 0},
        "yAxis": axis | {"name": y, "nameGap": 50, "min": 0},
        "series": series,
    }
    st.echarts_chart(spec, height=450, key=key)
