"""Sliding and hybrid models: which layer sees how far, and how far that reaches through the layers."""

import streamlit as st

from kvviz.figures.heads import layer_reach
from kvviz.geometry.reach import reach
from kvviz.ui.planner.inputs import ask_model
from kvviz.ui.shell import Page


def show(page: Page) -> None:
    """The view."""
    t = page.t
    st.caption(t("Mistral 7B v0.1 slides in every layer, Gemma 3 in five of six, gpt-oss in every second."))
    chosen = ask_model(page, "reach", "gemma-3-27b")
    if chosen is None:
        return
    base = chosen[0]
    most = min(base.context or 131_072, 1_000_000)
    place = st.columns(3)[0]
    tokens = int(place.number_input(t("Tokens of context"), 1, 10**7, most, step=1024, key="reach_tokens"))
    frame = reach(base.shapes, tokens)
    figure = layer_reach(frame, t, page.theme)
    st.plotly_chart(figure, theme=None, key="reach", alt=t("How far back every layer sees and reaches"))
    _sentences(page, frame, tokens)
    st.download_button(
        t("Reach (CSV)"), lambda: frame.to_csv(index=False), "kvviz-reach.csv", "text/csv", key="reach_csv",
        on_click="ignore", icon=":material/download:",
    )  # fmt: skip


def _sentences(page: Page, frame, tokens: int) -> None:
    t = page.t
    if not (frame["kind"] == "sliding").any():
        st.markdown(t("No layer of this model slides: each sees the whole text at once."))
        return
    whole = frame[frame["reaches_tokens"] >= tokens]
    if len(whole):
        told = t("From layer {layer} on, something of the whole text of {tokens} tokens can arrive.")
        st.markdown(told.format(layer=int(whole["layer"].iloc[0]), tokens=f"{tokens:,}"))
    else:
        told = t("Even the last layer reaches {reach} tokens back: what came before cannot have any effect.")
        st.markdown(told.format(reach=f"{int(frame['reaches_tokens'].iloc[-1]):,}"))
    st.caption(
        t(
            "Reaching is not remembering: what comes through many layers has been mixed with everything on the way. "
            "A window of W moves what is known by W − 1 tokens a layer."
        )
    )
