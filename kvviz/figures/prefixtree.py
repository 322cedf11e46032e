"""A prefix cache's radix tree as a figure: every node at its positions, beside what goes on from it."""

import html

import pandas as pd
import plotly.graph_objects as go

from kvviz.figures.theme import apply, background
from kvviz.locale import N_, Translate
from kvviz.palette import RAMPS, Theme, colour
from kvviz.units import size

_LETTERS = 100  # that fit over the width of the tree


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
    end = int((placed["start"] + placed["tokens"]).max()) if len(placed) else 1
    oldest = placed.loc[placed["leaf"], "last_use"].min()
    kinds = (
        (~placed["leaf"], t("shared by several prompts"), colour("shared", theme)),
        (placed["leaf"] & (placed["last_use"] != oldest), t("of one prompt"), RAMPS["neutral"][theme][3]),
        (placed["leaf"] & (placed["last_use"] == oldest), t("leaf that goes next"), colour("sink", theme)),
    )
    for chosen, name, ink in kinds:
        part = placed[chosen]
        figure.add_bar(
            orientation="h", base=part["start"], x=part["tokens"], y=part["top"] + part["rows"] / 2,
            width=part["rows"] * 0.94, marker={"color": ink, "line": {"width": 1, "color": background(theme)}},
            name=name,
            text=[_fitting(t, row, end) for row in part.itertuples()], textposition="inside", textangle=0,
            insidetextanchor="start", constraintext="none", insidetextfont={"color": background(theme), "size": 14},
            customdata=[[html.escape(_shortened(row.text, 90)), size(row.bytes), row.last_use, row.node]
                        for row in part.itertuples()],
            hovertemplate="%{customdata[0]}<br>"
            + t("node {node}: {tokens} tokens from position {start}, {bytes}, last used by prompt {use}").format(
                node="%{customdata[3]}", tokens="%{x}", start="%{base}", bytes="%{customdata[1]}",
                use="%{customdata[2]}",
            ) + "<extra></extra>",
        )  # fmt: skip
    leaves = int(placed["leaf"].sum())
    figure.update_xaxes(title=t("position in the prompt"), range=[0, end])
    figure.update_yaxes(visible=False, range=[max(1, leaves), 0])
    figure.update_layout(barmode="overlay", height=120 + 34 * min(30, max(3, leaves)))
    return apply(figure, theme)


def _fitting(t: Translate, row: object, end: int) -> str:
    """As much of a node's text as its bar has room for, tokens and last use first."""
    room = int(_LETTERS * row.tokens / end)
    facts = t("{tokens} tokens · prompt {use}").format(tokens=row.tokens, use=row.last_use)
    if room < len(facts):
        return str(row.tokens) if room > len(str(row.tokens)) else ""
    text = _shortened(row.text, room - len(facts) - 3)
    return html.escape(f"{facts} · {text}" if len(text) > 3 else facts, quote=False)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(0, most - 1)] + "…"
