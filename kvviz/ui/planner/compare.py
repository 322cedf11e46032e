"""Several models at once: bytes against context, with the room that cards have."""

import pandas as pd
import streamlit as st

from kvviz.figures.plan import COUNTS, context_curves
from kvviz.geometry.gpus import GPUS
from kvviz.models.presets import presets
from kvviz.ui.planner.inputs import planned
from kvviz.ui.shell import Page

_SHOWN = ["llama-2-7b", "llama-3.1-8b", "mistral-7b-v0.1", "gemma-3-27b", "deepseek-v3"]
_CARDS = ["NVIDIA H100 80 GB"]


def show(page: Page) -> None:
    """The view."""
    t, known = page.t, presets()
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    names = left.multiselect(
        t("Models"), list(known), _SHOWN, format_func=lambda name: known[name].title, key="compare_models"
    )
    cards = right.multiselect(t("Cards"), [card.name for card in GPUS], _CARDS, key="compare_cards")
    scale, counted = st.columns([1, 3], vertical_alignment="bottom")
    log = scale.toggle(t("Logarithmic"), True, key="compare_log", bind="query-params")
    count = counted.segmented_control(
        t("Counted"), list(COUNTS), format_func=lambda name: t(COUNTS[name]), default="total_bytes", required=True,
        key="compare_count", label_visibility="collapsed",
    )  # fmt: skip
    if not names:
        st.info(t("Choose at least one model."))
        return
    with st.spinner(t("Running the model's code without weights …"), show_time=True):
        curves = [planned(name).curve().assign(model=known[name].title) for name in names]
    frame = pd.concat(curves, ignore_index=True).query("tokens >= 128")
    room = pd.DataFrame([{"gpu": card.name, "room_bytes": card.memory_bytes} for card in GPUS if card.name in cards])
    figure = context_curves(frame, room if len(room) else None, log=log, count=count, t=t, theme=page.theme)
    figure.update_layout(height=560)
    st.plotly_chart(figure, theme=None, key="compare_curves", alt=t("Cache of several models against context"))
    st.caption(t("One user, bfloat16. Lines across are the whole memory of a card; weights are not counted here."))
    st.download_button(
        t("Curves (CSV)"), lambda: frame.to_csv(index=False), "kvviz-curves.csv", "text/csv", key="compare_csv",
        on_click="ignore", icon=":material/download:",
    )  # fmt: skip
