"""Policies side by side: one text, one budget, several ideas of what to throw away."""

import streamlit as st

from kvviz.ui.pruning.side_inputs import ask
from kvviz.ui.shell import Page


def show(page: Page) -> None:
    """The whole view."""
    ask(page)
    st.caption(page.t("Press Compare: the model reads the text once under each policy, then writes on."))
