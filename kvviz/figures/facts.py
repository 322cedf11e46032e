"""Figures of the fact probe: what was still held and what was still known, by depth; and how sure the shares are."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvviz.figures.attention import scale
from kvviz.figures.policies import look
from kvviz.figures.theme import apply
from kvviz.locale import N_, Translate
from kvviz.palette import TEXT, Theme, colour


def held_and_known(
    depths: pd.DataFrame, names: Mapping[str, str], t: Translate = N_, theme: Theme = "light"
) -> go.Figure:
    """Two maps, policies by depth: layers x heads that hold the answer's token, and right answers, both in percent.

    `depths` as from `kvviz.analysis.facts.by_depth`; `names` for people by policy, drawn in their order.
    """
    policies, columns = list(names), sorted(depths["depth_percent"].unique().tolist())
    figure = make_subplots(
        1, 2, shared_yaxes=True, horizontal_spacing=0.04,
        subplot_titles=(t("KV of the answer still there (% of heads)"), t("right answers (%)")),
    )  # fmt: skip
    counts = _square(depths, "right", policies, columns)
    several = _square(depths, "placements", policies, columns)
    written = {
        "held_share": _texts(100 * _square(depths, "held_share", policies, columns)),
        "right_share": np.array(
            [[f"{int(a)}/{int(b)}" for a, b in zip(*rows, strict=True)] for rows in zip(counts, several, strict=True)]
        ),
    }
    told = {
        "held_share": t("{policy}, fact at {depth} %: {share} % of heads hold the answer"),
        "right_share": t("{policy}, fact at {depth} %: {share} % of answers right"),
    }
    for column, (what, ramp) in enumerate((("held_share", "k"), ("right_share", "v")), start=1):
        figure.add_heatmap(
            x=list(range(len(columns))), z=100 * _square(depths, what, policies, columns), zmin=0, zmax=100,
            colorscale=scale(ramp, theme),
            showscale=False, xgap=3, ygap=3, text=written[what], texttemplate="%{text}", textfont={"size": 16},
            customdata=[[(names[policy], depth) for depth in columns] for policy in policies],
            hovertemplate=told[what].format(policy="%{customdata[0]}", depth="%{customdata[1]}", share="%{z:.0f}")
            + "<extra></extra>",
            row=1, col=column,
        )  # fmt: skip
    ticks = {
        "tickmode": "array",
        "tickvals": list(range(len(columns))),
        "ticktext": [f"{depth} %" for depth in columns],
    }
    plain = {"showgrid": False, "showline": False, "ticks": ""}
    figure.update_xaxes(**ticks, **plain, type="linear", title=t("depth of the fact in the text"))
    rows = {"tickmode": "array", "tickvals": list(range(len(policies))), "ticktext": list(names.values())}
    figure.update_yaxes(**plain, autorange="reversed")
    figure.update_yaxes(**rows, row=1, col=1)
    figure.update_annotations(font={"size": 17, "color": TEXT[theme]})
    return apply(figure.update_layout(height=150 + 44 * len(policies), margin={"t": 48}), theme)


def _square(depths: pd.DataFrame, value: str, policies: list[str], columns: list[int]) -> np.ndarray:
    table = depths.pivot(index="policy", columns="depth_percent", values=value)
    return table.loc[policies, columns].to_numpy(dtype=np.float32)


def _texts(numbers: np.ndarray) -> np.ndarray:
    return np.array([[f"{value:.0f}" for value in row] for row in numbers])


def known_shares(
    policies: pd.DataFrame,
    names: Mapping[str, str],
    arms: Mapping[str, str],
    t: Translate = N_,
    theme: Theme = "light",
) -> go.Figure:
    """Points: right answers of every policy with their 95 % interval, and the line of guessing.

    `policies` as from `kvviz.analysis.facts.by_policy`; `names` for people and `arms` for the look, by policy.
    """
    figure = go.Figure()
    shown = policies.set_index("policy").loc[list(names)]
    for index, (policy, row) in enumerate(shown.iterrows()):
        marker = look(arms[policy], theme)[1] if arms[policy] != "full" else {"color": TEXT[theme], "symbol": "star"}
        figure.add_scatter(
            x=[100 * row["right_share"]], y=[index], mode="markers", name=names[policy], showlegend=False,
            marker={**marker, "size": 13},
            error_x={
                "type": "data", "symmetric": False, "thickness": 2.5, "width": 7,
                "array": [100 * (row["high"] - row["right_share"])],
                "arrayminus": [100 * (row["right_share"] - row["low"])],
            },
            hovertemplate=t("{policy}: {right} of {count} right, 95 % interval {low} to {high} %").format(
                policy=names[policy], right=int(row["right"]), count=int(row["placements"]),
                low=f"{100 * row['low']:.0f}", high=f"{100 * row['high']:.0f}",
            ) + "<extra></extra>",
        )  # fmt: skip
    chance = 100 * float(shown["chance"].mean())
    figure.add_vline(
        x=chance, line={"color": colour("evicted", theme), "width": 1.5, "dash": "dot"},
        annotation={"text": t("guessing"), "yref": "paper", "y": 1.0, "yanchor": "bottom", "font": {"size": 14}},
    )  # fmt: skip
    rows = {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": list(names.values())}
    figure.update_yaxes(**rows, range=[len(names) - 0.5, -0.5])
    figure.update_xaxes(title=t("right answers (%), with 95 % interval"), range=[-2, 102], showgrid=True)
    return apply(figure.update_layout(height=130 + 44 * len(names), margin={"t": 40}), theme)
