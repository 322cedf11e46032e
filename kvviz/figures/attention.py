"""Figures of a text's attention: where the sinks are, and which head looks where."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from kvviz.figures.theme import apply, background
from kvviz.locale import N_, Translate
from kvviz.palette import RAMPS, Theme


def scale(name: str, theme: Theme) -> list[tuple[float, str]]:
    """One of the palette's ramps as a plotly colour scale."""
    ramp = RAMPS[name][theme]
    return [(index / (len(ramp) - 1), colour) for index, colour in enumerate(ramp)]


def head_map(heads: pd.DataFrame, column: str, title: str, t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """Layers by heads, shaded by one `column` of a frame with a row a layer and head (0 to 1), titled `title`.

    Query heads that share a K/V head stand together, a gap between groups.
    """
    table = heads.pivot(index="layer", columns="head", values=column)
    layers, columns = table.index.to_numpy(), table.columns.to_numpy()
    figure = go.Figure(
        go.Heatmap(
            z=table.to_numpy(dtype=np.float32),
            x=columns,
            y=np.arange(len(layers)),
            customdata=np.broadcast_to(layers[:, None], table.shape),
            zmin=0,
            zmax=1,
            colorscale=scale("k", theme),
            xgap=1,
            ygap=1,
            colorbar={"title": {"text": title, "side": "right"}, "thickness": 14},
            hovertemplate=t("layer {layer}, head {head}: {value}").format(
                layer="%{customdata}", head="%{x}", value="%{z:.3f}"
            )
            + "<extra></extra>",
        )
    )
    for edge in _group_edges(heads):
        figure.add_vline(x=edge - 0.5, line={"color": background(theme), "width": 5})
    figure.update_xaxes(title=t("query head"), tickmode="array", tickvals=columns, ticktext=[str(c) for c in columns])
    every = max(1, len(layers) // 10)
    ticks = np.arange(0, len(layers), every)
    figure.update_yaxes(
        title=t("layer"), autorange="reversed", showgrid=False, tickmode="array", tickvals=ticks, ticktext=layers[ticks]
    )
    figure.update_layout(height=520)
    return apply(figure, theme)


def _group_edges(heads: pd.DataFrame) -> list[int]:
    """Where a new K/V head begins, if all layers agree."""
    groups = heads.groupby("head")["kv_head"].unique()
    if groups.map(len).max() > 1:
        return []
    kv = groups.map(lambda only: only[0]).to_numpy()
    return [int(head) for head in groups.index[1:][kv[1:] != kv[:-1]]] if len(set(kv)) < len(kv) else []
