"""A prefix cache's radix tree as a figure: every node at its positions, beside what goes on from it."""

import html
from typing import NamedTuple

import pandas as pd
import plotly.graph_objects as go

from kvviz.figures.theme import apply, background
from kvviz.locale import N_, Translate
from kvviz.palette import RAMPS, Theme, colour
from kvviz.units import size

_LETTERS = 120  # that fit over the width of the figure
_ROOM = 1.6  # width of the figure in lengths of the longest prompt: the texts of leaves stand right of their bars
_TALLEST = 1500  # pixels
_LEGIBLE = 16  # pixels a bar must be high to be written on


def tree_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with `top` and `rows`: a node stands beside all leaves under it, one row a leaf.

    `frame` as `kvviz.PrefixCache.tree()` gives it, parents before children.
    """
    pairs = list(zip(frame["node"], frame["parent"], strict=True))
    rows: dict[int, int] = {}
    for node, parent in reversed(pairs):
        rows[node] = rows.get(node, 0) or 1
        rows[parent] = rows.get(parent, 0) + rows[node]
    top, free = {}, {0: 0}
    for node, parent in pairs:
        top[node] = free[node] = free[parent]
        free[parent] += rows[node]
    return frame.assign(top=[top[node] for node, _ in pairs], rows=[rows[node] for node, _ in pairs])


def tree(frame: pd.DataFrame, t: Translate = N_, theme: Theme = "light") -> go.Figure:
    """The radix tree: a bar is a node, as long as its tokens, beside all that goes on from it.

    `frame` as `kvviz.PrefixCache.tree()` gives it. The leaf that goes next is the one not used for longest.
    """
    figure, placed = go.Figure(), tree_rows(frame)
    end = max(1, int((placed["start"] + placed["tokens"]).max())) if len(placed) else 1
    leaves = max(1, int(placed["leaf"].sum()))
    row_height = max(6, min(34, _TALLEST // leaves))
    oldest = placed.loc[placed["leaf"], "last_use"].min()
    kinds = (
        (~placed["leaf"], t("shared by several prompts"), colour("shared", theme)),
        (placed["leaf"] & (placed["last_use"] != oldest), t("of one prompt"), RAMPS["neutral"][theme][3]),
        (placed["leaf"] & (placed["last_use"] == oldest), t("leaf that goes next"), colour("sink", theme)),
    )
    for chosen, name, ink in kinds:
        figure.add_trace(_bars(placed[chosen], name, ink, end, row_height, t, theme))
    figure.update_xaxes(title=t("position in the prompt"), range=[0, end * _ROOM])
    figure.update_yaxes(visible=False, range=[leaves, 0])
    figure.update_layout(barmode="overlay", height=120 + row_height * max(3, leaves))
    return apply(figure, theme)


def _bars(part: pd.DataFrame, name: str, ink: str, end: int, row_height: int, t: Translate, theme: Theme) -> go.Bar:
    """The nodes of one kind; what goes on from a node stands right of it, so only a leaf's text may leave its bar."""
    nodes = list(part.itertuples())
    written = [_written(t, node, end) if row_height * node.rows >= _LEGIBLE else "" for node in nodes]
    told = t("node {node}: {tokens} tokens from position {start}, {bytes}, last used by prompt {use}").format(
        node="%{customdata[3]}", tokens="%{x}", start="%{base}", bytes="%{customdata[1]}", use="%{customdata[2]}"
    )
    return go.Bar(
        orientation="h",
        base=part["start"],
        x=part["tokens"],
        y=part["top"] + part["rows"] / 2,
        width=part["rows"] * 0.94,
        name=name,
        marker={"color": ink, "line": {"width": 1, "color": background(theme)}},
        text=written,
        textposition=["outside" if node.leaf else "inside" for node in nodes],
        textangle=0,
        insidetextanchor="start",
        constraintext="none",
        cliponaxis=False,
        insidetextfont={"color": background(theme), "size": 14},
        outsidetextfont={"size": 14},
        customdata=[[_safe(node.text, 90), size(node.bytes), node.last_use, node.node] for node in nodes],
        hovertemplate=f"%{{customdata[0]}}<br>{told}<extra></extra>",
    )


def _written(t: Translate, node: NamedTuple, end: int) -> str:
    """Tokens, last use and as much of the text as there is room for."""
    reach = end * _ROOM - node.start - node.tokens if node.leaf else node.tokens
    room = int(_LETTERS * reach / (end * _ROOM))
    facts = t("{tokens} tokens · prompt {use}").format(tokens=node.tokens, use=node.last_use)
    if room < len(facts):
        return str(node.tokens) if room > len(str(node.tokens)) else ""
    rest = room - len(facts) - 2
    # marks of white space are for tokens; between words of a long text they only look like a line through it
    return f"{facts}: {_safe(node.text.replace('·', ' ').strip(), rest)}" if rest > 3 else facts


def _safe(text: str, most: int) -> str:
    """At most so many letters, with markup shown and not obeyed."""
    return html.escape(text if len(text) <= most else text[: most - 1] + "…", quote=False)
