"""Figures of two prompts: how far their K and V are from each other, everywhere and in one pair of equal tokens."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvviz.figures.attention import scale
from kvviz.figures.heatmap import ground
from kvviz.figures.theme import apply, token_ticks
from kvviz.locale import N_, Translate
from kvviz.palette import TEXT, Theme, colour

MOST_COLUMNS = 256  # more positions share a column, which shows their largest distance
_LETTERS = 14  # of a label on the axis


def cell_size(positions: int) -> int:
    """Positions that share a column of `distance_map`."""
    return max(1, -(-positions // MOST_COLUMNS))


def distance_map(
    frame: pd.DataFrame, labels: Sequence[str], shared: int, t: Translate = N_, theme: Theme = "light"
) -> go.Figure:
    """K beside V: layers by positions, each cell |a - b| over the mean of |a| and |b|, from 0 to what is largest.

    `frame`: layer, position, key, value, as `PrefixReuse.distances` gives; `labels` has a label for each position,
    `shared` positions are the common prefix, which ends at the line.
    """
    positions = frame["position"].nunique()
    cell, layers = cell_size(positions), frame["layer"].drop_duplicates().tolist()
    centres = np.arange(0, positions, cell) + (cell - 1) / 2
    largest = max(1e-3, float(np.nanmax(frame[["key", "value"]].to_numpy(), initial=0)))
    figure = make_subplots(cols=2, shared_yaxes=True, horizontal_spacing=0.03, subplot_titles=(t("keys"), t("values")))
    for place, (column, name) in enumerate((("key", t("keys")), ("value", t("values"))), 1):
        grid = pooled(frame.pivot(index="layer", columns="position", values=column).to_numpy(), cell)
        figure.add_heatmap(
            z=grid.astype(np.float32), x=centres, y=list(range(len(layers))), coloraxis="coloraxis", hoverongaps=False,
            customdata=np.broadcast_to(np.array(layers)[:, None], grid.shape), row=1, col=place,
            hovertemplate=t("{name}, layer {layer}, position {position}: distance {value}").format(
                name=name, layer="%{customdata}", position="%{x}", value="%{z:.4f}"
            ) + "<extra></extra>",
        )  # fmt: skip
        figure.add_vline(x=shared - 0.5, line={"color": TEXT[theme], "width": 2, "dash": "dot"}, row=1, col=place)
    words = [
        f"{at} {label}" if len(label) <= _LETTERS else f"{at} {label[:_LETTERS]}…" for at, label in enumerate(labels)
    ]
    ticks = token_ticks(words, most=24) if cell == 1 else {"type": "linear"}
    figure.update_xaxes(title=t("position"), range=[-0.5, positions - 0.5], showgrid=False, **ticks)
    every = max(1, len(layers) // 10)
    rows = list(range(0, len(layers), every))
    figure.update_yaxes(autorange="reversed", showgrid=False, tickvals=rows, ticktext=[str(layers[at]) for at in rows])
    figure.update_yaxes(title=t("layer"), col=1)
    bar = {"thickness": 14, "title": {"side": "right", "text": t("distance (0: the same)")}}
    colours = {"colorscale": scale("neutral", theme), "cmin": 0, "cmax": largest, "colorbar": bar}
    figure.update_layout(height=520, plot_bgcolor=ground(theme), coloraxis=colours)
    return apply(figure, theme)


def pooled(grid: np.ndarray, cell: int) -> np.ndarray:
    """The largest of every `cell` neighbouring columns; NaN only where all are."""
    padded = np.pad(grid, ((0, 0), (0, -grid.shape[1] % cell)), constant_values=np.nan)
    return np.fmax.reduce(padded.reshape(len(grid), -1, cell), axis=2)


def pair_distances(frame: pd.DataFrame, t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """One pair of equal tokens: the distance of its keys and of its values, layer by layer.

    `frame`: layer, key, value, the rows of one pair of `PrefixReuse.equal_tokens`.
    """
    figure = go.Figure()
    for column, name, meaning, symbol in (("key", t("keys"), "k", "circle"), ("value", t("values"), "v", "diamond")):
        figure.add_scatter(
            x=frame["layer"], y=frame[column], name=name, mode="lines+markers",
            line={"color": colour(meaning, theme), "width": 2.5}, marker={"size": 8, "symbol": symbol},
            hovertemplate=t("{name}, layer {layer}: distance {value}").format(
                name=name, layer="%{x}", value="%{y:.4f}"
            ) + "<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title=t("layer"))
    figure.update_yaxes(title=t("distance (0: the same)"), rangemode="tozero")
    figure.update_layout(height=340)
    return apply(figure, theme)
