"""All heads of the chosen layer beside each other: what is common, and which head is unlike the others."""

import streamlit as st

from kvviz.figures.wall import head_wall
from kvviz.summary import AttentionSummary
from kvviz.ui.attention.heatmap import WIDTH
from kvviz.ui.attention.words import kv_heads
from kvviz.ui.shell import Page


def wall(page: Page, summary: AttentionSummary, layer: int, head: int) -> None:
    """The wall of small maps; the open head is framed."""
    t, measures = page.t, summary.of_layer(layer)
    st.subheader(t("Do the other heads of this layer look elsewhere?"), anchor=False)
    groups = kv_heads(summary, layer)
    st.plotly_chart(
        head_wall(measures.pooled, groups, measures.choices, head, t, page.theme), theme=None, key="head_wall",
        width=WIDTH, alt=t("Small maps of all heads of the layer"),
    )  # fmt: skip
    told = t("Layer {layer}: rows are queries, columns keys, as above. The framed head is the open one.")
    shared = t("Query heads that stand together read the same K and V: {heads} query heads, {groups} KV heads.")
    lines = [told.format(layer=layer)]
    if len(set(groups)) < len(groups):
        lines.append(shared.format(heads=len(groups), groups=len(set(groups))))
    st.caption(" ".join(lines))
