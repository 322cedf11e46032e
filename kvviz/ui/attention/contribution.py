"""Weight against contribution: a sink takes most of the weight; how much does that add?"""

import numpy as np
import streamlit as st

from kvviz.analysis.attention import NOISY_END
from kvviz.analysis.contribution import Shares, contribution_frame, shares_of
from kvviz.figures.contribution import glow_and_fade, weighted_map
from kvviz.locale import Translate
from kvviz.summary import AttentionSummary
from kvviz.ui.attention.heatmap import map_view
from kvviz.ui.attention.words import heads_sentence, pooling_sentence
from kvviz.ui.shell import Page


def contribution(page: Page, summary: AttentionSummary, layer: int, head: int) -> None:
    """The plain map beside the weighted one, every key's two parts, and the sentence with the numbers."""
    t, measures = page.t, summary.of_layer(layer)
    st.subheader(t("Does what is looked at also count?"), anchor=False)
    if measures.contribution is None:
        st.caption(t("This model's output projection cannot be read, so what a value adds is not known."))
        return
    everything = range(len(summary.ids))
    view = map_view(summary, layer, head, everything, everything)
    for place, weighted in zip(st.columns(2), (False, True), strict=True):
        alt = t("Attention times what each value adds, as a map") if weighted else t("Attention, as a map")
        place.plotly_chart(
            weighted_map(view, summary.labels, weighted, t, page.theme), theme=None, key=f"weighted_{weighted}", alt=alt
        )
    with st.container(key="sink_shares"):
        st.markdown(_sentence(page, summary, layer, head))
    frame = contribution_frame(measures, head)
    st.plotly_chart(
        glow_and_fade(frame, summary.labels, t, page.theme), theme=None, key="glow_and_fade",
        alt=t("What every key received, and what came of it"),
    )  # fmt: skip
    norm = t(
        "Norm: the length of the vector that the key's value would add to the residual stream, through this head's "
        "part of the output projection, if all attention went there (Kobayashi et al. 2020)."
    )
    st.caption(heads_sentence(t, summary, layer, head) + " " + norm)
    if view.cell != (1, 1):
        st.caption(pooling_sentence(t, *view.cell))


def _sentence(page: Page, summary: AttentionSummary, layer: int, head: int) -> str:
    """The key that received most on average, its share of the weight, and of weight x norm."""
    t, measures = page.t, summary.of_layer(layer)
    received = contribution_frame(measures, head)["received"].to_numpy()
    judged = received[:-NOISY_END] if len(received) > NOISY_END else received
    shares = shares_of(measures, head, int(np.nanargmax(judged)))
    told = t(
        "The key at position {position} takes **{weight}** of all attention of this head, and **{contribution}** of "
        "attention × norm."
    )
    facts = {"weight": f"{shares.weight:.1%}", "contribution": f"{shares.contribution:.1%}"}
    return told.format(position=shares.position, **facts) + " " + _verdict(t, shares)


def _verdict(t: Translate, shares: Shares) -> str:
    factor = shares.contribution / shares.weight
    if factor < 0.5:
        return t("That is less than half: it is looked at more than it adds, and the map pales there.")
    if factor < 0.8:
        return t("It adds less than it is looked at.")
    if factor > 1.25:
        return t("It adds even more than it is looked at.")
    return t("It adds about as much as it is looked at.")
